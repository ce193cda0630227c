// What the library links when it is built without the CUDA toolkit.

#include "engine/cuda/cuda.h"
#include "engine/error.h"

namespace halfgrad::cuda {

bool is_available() { return false; }

Backend& backend(int index) { fail("cuda:{}: this build of halfgrad has no CUDA backend; use the device cpu", index); }

}  // namespace halfgrad::cuda
