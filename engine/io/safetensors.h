#pragma once
// Safetensors (https://github.com/huggingface/safetensors), the file format in which Python's libraries exchange
// models:
//
//     8 bytes   the length of the header, little-endian
//     header    JSON, padded with spaces so that the data begins at a multiple of 8 bytes:
//               {"__metadata__": {"key": "text", ...},
//                "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//     data      the elements of every tensor, row-major and little-endian, one tensor right behind the other;
//               data_offsets count bytes from here

#include <map>
#include <string>

#include "engine/tensor.h"

namespace halfgrad {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes the tensors, of any shape, dtype, memory layout and device, bit by bit; no more than one of them is copied at
/// a time. As in the reference implementation, wider dtypes come first, then names in byte order. `path` holds its old
/// contents or all of the new at any moment (engine/io/atomic_file.h).
/// Throws Error for an undefined tensor, the name "__metadata__", a text that is not UTF-8, or a file that cannot be
/// written.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a whole file; the tensors are row-major and on the host. The header is checked in full before memory is taken
/// for a tensor. Throws Error that names the file, the tensor, what was found and what was expected when the file
/// cannot be read, is damaged or cut off, or has a dtype that halfgrad lacks.
SafetensorsFile load_safetensors(const std::string& path);

}  // namespace halfgrad
