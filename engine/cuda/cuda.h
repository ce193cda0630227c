#pragma once
// The CUDA side of the seam. The backend itself is in a shared module, which is opened when a GPU is first asked for
// (module.h): a program runs with it, and also where there is no GPU, no driver or no CUDA at all.

#include "engine/backend.h"

namespace halfgrad::cuda {

/// True when this build has CUDA, its module can be opened and a GPU answers.
bool is_available();
/// The backend of GPU `index`; throws Error, which says what is missing, when there is none.
Backend& backend(int index);

}  // namespace halfgrad::cuda
