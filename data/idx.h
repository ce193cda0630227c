#pragma once
// IDX, the file format of MNIST and its successors (http://yann.lecun.com/exdb/mnist): two zero bytes, a byte
// for the element type, a byte for the rank, the sizes as big-endian 32-bit integers, then the elements,
// big-endian, row-major.

#include <string>

#include "engine/tensor.h"

namespace halfgrad::data {

/// Reads an IDX file, plain or compressed with gzip. Bytes become u8, floats f32, doubles f64; signed bytes,
/// shorts and ints become i32. A file that is not exactly one whole IDX array is an Error that names it;
/// memory is taken only for bytes that the file really holds.
Tensor read_idx(const std::string& path);

}  // namespace halfgrad::data
