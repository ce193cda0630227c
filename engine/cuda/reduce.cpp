// Reductions on the GPU. Long lines are cut into chunks, whose results are reduced in turn: so a few long lines keep the
// whole GPU busy, and a sum's rounding errors stay small. Where the cuts are depends on shapes and strides alone.

#include "engine/cuda/reduce.h"

#include <limits>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/line_plan.h"

namespace halfgrad {

namespace {

using cuda::LinePlan;

constexpr std::uint32_t kChunk = 8192;       // elements that a block reduces: four times eight for each of its threads
constexpr std::uint32_t kColumnChunk = 128;  // ... and a thread alone, next to its neighbours

double identity(ReduceOp op) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::prod:
    case ReduceOp::all:
      return 1;
    case ReduceOp::max:
      return -infinity;
    case ReduceOp::min:
      return infinity;
    case ReduceOp::sum:
    case ReduceOp::any:
      break;
  }
  return 0;
}

}  // namespace

void CudaBackend::reduce(ReduceOp op, const View& y, const View& x, double scale) {
  static_assert(static_cast<int>(ReduceOp::sum) == 0 && static_cast<int>(ReduceOp::all) == 5);  // as in reduce.cu
  if (y.numel() == 0) return;
  if (x.numel() == 0) {
    double nothing = identity(op) * scale;
    return copy(y, {&nothing, f64, y.shape, Strides(y.shape.size(), 0)});
  }
  std::uint64_t reduced = 0;
  std::size_t last_reduced = 0;
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (x.shape[d] != y.shape[d]) {
      reduced |= std::uint64_t{1} << d;
      last_reduced = d;
    }

  const LinePlan whole({&x, &y}, reduced);
  const bool by_columns = whole.lines_are_closer();
  const std::uint32_t size = by_columns ? kColumnChunk : kChunk;
  const std::int64_t chunks = whole.chunks(size);
  const DType dtype = compute_dtype(x.dtype);
  const auto run = [&](const LinePlan& plan, std::int64_t stride, double factor) {
    const unsigned group = LinePlan::group_for(std::min<std::int64_t>(plan.length(), size), by_columns);
    for (const auto& [lines, first] : plan.parts(group, size)) {
      const std::uint32_t n = lines.elements.numel, count = (n + size - 1) / size;
      cuda::reduce(static_cast<int>(op), dtype, lines, {size, count, first, stride}, factor, queue());
    }
  };
  if (chunks == 1) return run(whole, 0, scale);

  // The results of the chunks take the place of a reduced dimension: beside each other, or like columns, as x lies.
  const std::int64_t lines = y.numel();
  const Storage memory(allocator_, device(), static_cast<std::size_t>(lines * chunks) * size_of(dtype));
  View partial{memory.data(), dtype, y.shape, contiguous_strides(y.shape), device()};
  if (!by_columns)
    for (std::size_t d = 0; d < partial.strides.size(); ++d) partial.strides[d] *= chunks;
  const std::int64_t stride = by_columns ? lines : 1;
  run(LinePlan({&x, &partial}, reduced), stride, 1);
  partial.shape[last_reduced] = chunks;
  partial.strides[last_reduced] = stride;
  reduce(op, y, partial, scale);
}

}  // namespace halfgrad
