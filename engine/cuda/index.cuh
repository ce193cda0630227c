#pragma once
// What kernels do about an index that is out of range.

#include "engine/cuda/index.h"
#include "engine/cuda/launch.cuh"

namespace halfgrad::cuda {

/// Leaves a note for the host, unless there is one already.
__device__ inline void note(BadIndex* bad, const BadIndex& found) {
  auto* const noted = reinterpret_cast<unsigned long long*>(&bad->op);
  if (atomicCAS(noted, 0ULL, static_cast<unsigned long long>(found.op)) != 0) return;  // another was first
  bad->value = found.value;
  bad->element = found.element;
  bad->size = found.size;
}

}  // namespace halfgrad::cuda
