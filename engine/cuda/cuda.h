#pragma once
// The CUDA side of the seam. The backend itself is in a shared module, which is opened when a GPU is first asked for
// (module.h): a program runs with it, and also where there is no GPU, no driver or no CUDA at all.

#include <string>

#include "engine/backend.h"

namespace halfgrad::cuda {

/// Why there is no GPU `index` to use, in one line: no CUDA in this build, no module that can be opened, no GPU that
/// answers. Empty when there is one.
std::string why_unavailable(int index = 0);
inline bool is_available() { return why_unavailable().empty(); }
/// The backend of GPU `index`; throws Error, which says what is missing, when there is none.
Backend& backend(int index);

}  // namespace halfgrad::cuda
