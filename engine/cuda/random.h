#pragma once
// The random kernels. The fills are of row-major memory of a float dtype; numel > 0.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/cuda/space.h"
#include "engine/dtype.h"
#include "engine/random_fill.h"

namespace halfgrad::cuda {

/// Where the random numbers of captured work begin, in the memory of the GPU: see CudaBackend::capture.
struct RandomBase {
  std::uint64_t seed, offset;
};

// With a base, the seed is the base's, and the fill's offset counts from the base's.
void fill_uniform(const RandomFill&, void* y, DType dtype, std::int64_t numel, const RandomBase* base, const Queue&);
void fill_normal(const RandomFill&, void* y, DType dtype, std::int64_t numel, const RandomBase* base, const Queue&);
void fill_bernoulli(const RandomFill&, void* y, DType dtype, std::int64_t numel, const RandomBase* base, const Queue&);

/// y = x * the numbers of a bernoulli fill.
struct Dropout {
  Space space;            // of the elements in row-major order: of nothing, y and x
  std::uint64_t first;    // the number of the first
  bool is_dense = false;  // y and x lie in that order, too
};
void dropout(const RandomFill&, const Dropout&, void* y, const void* x, DType dtype, const RandomBase* base,
             const Queue&);

}  // namespace halfgrad::cuda
