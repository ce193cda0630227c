// Layer normalisation on the GPU.

#include "engine/cuda/layer_norm.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/elementwise.h"
#include "engine/cuda/line_plan.h"

namespace halfgrad {

namespace {

using cuda::LinePlan;
using cuda::Matrix;
using cuda::vector_of;

constexpr std::uint64_t kAlongRows = 0b10;
constexpr std::int64_t kChunkOfRows = 64;  // that are summed by one thread

Matrix matrix_of(const View& x) { return {{x.data, x.dtype}, x.strides[0], x.strides[1]}; }

// [R] as [R, 1], [C] as [1, C]
View as_column(View x) {
  x.shape.push_back(1);
  x.strides.push_back(0);
  return x;
}
View as_row(View x) {
  x.shape.insert(0, 1);
  x.strides.insert(0, 0);
  return x;
}

}  // namespace

void CudaBackend::layer_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                             const View& bias, double eps) {
  const View mean_of_row = as_column(mean), rstd_of_row = as_column(rstd);
  for (const cuda::Lines& lines : LinePlan({&x, &y, &mean_of_row, &rstd_of_row}, kAlongRows).whole_lines("layer_norm"))
    cuda::layer_norm(compute_dtype(x.dtype), lines, vector_of(weight), vector_of(bias), eps, queue());
}

void CudaBackend::layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                      const View& x, const View& mean, const View& rstd, const View& weight) {
  const DType compute = compute_dtype(x.dtype);
  if (dx) {
    const View mean_of_row = as_column(mean), rstd_of_row = as_column(rstd);
    const LinePlan plan({&x, &dy, &dx, &mean_of_row, &rstd_of_row}, kAlongRows);
    for (const cuda::Lines& lines : plan.whole_lines("layer_norm"))
      cuda::layer_norm_backward(compute, lines, vector_of(weight), queue());
  }
  if (!dweight && !dbias) return;
  const std::int64_t rows = x.shape[0], columns = x.shape[1], chunks = (rows + kChunkOfRows - 1) / kChunkOfRows;
  const Shape shape{chunks, columns};
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(compute);
  const Storage products(allocator_, device(), bytes), sums(allocator_, device(), bytes);
  if (bytes > 0)
    cuda::layer_norm_column_sums(compute, matrix_of(x), matrix_of(dy), vector_of(mean), vector_of(rstd), rows, columns,
                                 kChunkOfRows, products.data(), sums.data(), queue());
  const auto add_up = [&](const View& y, const Storage& memory) {
    if (y) reduce(ReduceOp::sum, as_row(y), {memory.data(), compute, shape, contiguous_strides(shape), device()}, 1);
  };
  add_up(dweight, products);
  add_up(dbias, sums);
}

}  // namespace halfgrad
