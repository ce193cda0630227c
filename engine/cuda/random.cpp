// Random fills on the GPU.

#include "engine/cuda/random.h"

#include "engine/cuda/cuda_backend.h"

namespace halfgrad {

void CudaBackend::random(Distribution kind, const View& y, double a, double b, std::uint64_t seed,
                         std::uint64_t offset) {
  if (y.numel() == 0) return;
  // Elements are numbered in row-major order: anything but a row-major float tensor is filled by way of one.
  if (is_floating(y.dtype) && y.strides == contiguous_strides(y.shape)) {
    const auto* const base = capturing_ ? static_cast<const cuda::RandomBase*>(random_base_.data()) : nullptr;
    const RandomFill fill = random_fill(y.dtype, a, b, seed, capturing_ ? offset - captured_offset_ : offset);
    const auto kernel = kind == Distribution::uniform  ? cuda::fill_uniform
                        : kind == Distribution::normal ? cuda::fill_normal
                                                       : cuda::fill_bernoulli;
    return kernel(fill, y.data, y.dtype, y.numel(), base, queue());
  }
  const DType dtype = is_floating(y.dtype) ? y.dtype : f32;
  const Storage memory(allocator_, device(), static_cast<std::size_t>(y.numel()) * size_of(dtype));
  const View dense{memory.data(), dtype, y.shape, contiguous_strides(y.shape), device()};
  random(kind, dense, a, b, seed, offset);
  copy(y, dense);
}

}  // namespace halfgrad
