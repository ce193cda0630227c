#pragma once
// The CUDA side of the seam.

#include "engine/backend.h"

namespace halfgrad::cuda {

/// True when this build has CUDA and a GPU answers.
bool is_available();
/// The backend of GPU `index`; throws Error when there is none.
Backend& backend(int index);

}  // namespace halfgrad::cuda
