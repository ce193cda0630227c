// Random fills and dropout on the GPU.

#include "engine/cuda/random.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/pieces.h"

namespace halfgrad {

void CudaBackend::random(Distribution kind, const View& y, double a, double b, std::uint64_t seed,
                         std::uint64_t offset) {
  if (y.numel() == 0) return;
  // Elements are numbered in row-major order: anything but a row-major float tensor is filled by way of one.
  if (is_floating(y.dtype) && y.strides == contiguous_strides(y.shape)) {
    const auto* const base = random_base(offset);
    const RandomFill fill = random_fill(y.dtype, a, kind == Distribution::bernoulli ? 1 : b, seed,
                                        base ? offset - captured_offset_ : offset);
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

void CudaBackend::dropout(const View& y, const View& x, double p, std::uint64_t seed, std::uint64_t offset) {
  if (y.numel() == 0) return;
  const auto* const base = random_base(offset);
  const RandomFill fill = dropout_fill(p, seed, base ? offset - captured_offset_ : offset);
  View in_order = y;
  in_order.strides = contiguous_strides(y.shape);
  const LoopNest nest({&in_order, &y, &x});
  for (const cuda::Piece& piece : cuda::pieces(nest))
    cuda::dropout(
        fill, {cuda::space_of(piece), static_cast<std::uint64_t>(piece.begin[0]), nest.is_dense(1) && nest.is_dense(2)},
        y.at(piece.begin[1]), x.at(piece.begin[2]), y.dtype, base, queue());
}

// What was drawn before the capture began stays as it is.
const cuda::RandomBase* CudaBackend::random_base(std::uint64_t offset) const {
  return capturing_ && offset >= captured_offset_ ? static_cast<const cuda::RandomBase*>(random_base_.data()) : nullptr;
}

}  // namespace halfgrad
