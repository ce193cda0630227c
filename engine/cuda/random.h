#pragma once
// The random kernels. Each fills row-major memory of a float dtype; numel > 0.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/dtype.h"
#include "engine/random_fill.h"

namespace halfgrad::cuda {

void fill_uniform(const RandomFill&, void* y, DType dtype, std::int64_t numel, const Queue&);
void fill_normal(const RandomFill&, void* y, DType dtype, std::int64_t numel, const Queue&);
void fill_bernoulli(const RandomFill&, void* y, DType dtype, std::int64_t numel, const Queue&);

}  // namespace halfgrad::cuda
