#pragma once

#include <cstdint>
#include <string>

#include "engine/tensor.h"

namespace examples {

/// Writes grey images f32 [N, 1, H, W], whose pixels go from -1, black, to 1, white, as one PNG: `columns` side by side.
/// Error unless N is a multiple of `columns`; an Error that names the file when it cannot be written.
void save_image_grid(const std::string& path, const halfgrad::Tensor& images, std::int64_t columns);

}  // namespace examples
