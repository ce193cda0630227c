// Positions of extrema, and running sums, on the GPU. As in reduce.cpp, long lines are cut into chunks.

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/line_plan.h"
#include "engine/cuda/reduce.h"

namespace halfgrad {

namespace {

using cuda::Along;
using cuda::LinePlan;
using cuda::Lines;

constexpr std::int64_t kChunk = 8192;       // elements for a block
constexpr std::int64_t kColumnChunk = 128;  // ... and for a thread alone, next to its neighbours

// The lines of x and y along a dimension, in which a kernel counts for itself: it may be of any length.
struct LinesAlong {
  Along along;
  std::vector<Lines> lines;

  LinesAlong(const View& y, const View& x, int dim) {
    const auto d = static_cast<std::size_t>(dim);
    View first_y = y, first_x = x;
    first_y.shape[d] = first_x.shape[d] = 1;
    const LinePlan plan({&first_x, &first_y}, 0);
    const bool by_columns = plan.lines_are_closer_than(x.strides[d]);
    const std::int64_t n = x.shape[d], chunk = by_columns ? kColumnChunk : kChunk;
    along = {n, x.strides[d], y.strides[d], chunk, (n + chunk - 1) / chunk};
    for (const auto& part : plan.parts(LinePlan::group_for(std::min(n, chunk), by_columns), 1))
      lines.push_back(part.lines);
  }
  std::int64_t tasks(const Lines& some) const { return some.lines.numel * along.chunks; }
};

}  // namespace

void CudaBackend::arg_reduce(Extremum op, const View& y, const View& x, int dim) {
  if (x.numel() == 0) return;
  const LinesAlong plan(y, x, dim);
  const bool largest = op == Extremum::max;
  const DType compute = compute_dtype(x.dtype);
  for (Lines lines : plan.lines) {
    Along along = plan.along;
    if (along.chunks == 1) {
      cuda::position(largest, compute, lines, along, nullptr, nullptr, queue());
      continue;
    }
    // The best of each chunk, then the best of these.
    const Storage memory(allocator_, device(), static_cast<std::size_t>(plan.tasks(lines)) * sizeof(std::int64_t));
    auto* const best = static_cast<std::int64_t*>(memory.data());
    cuda::position(largest, compute, lines, along, nullptr, best, queue());
    along.chunk = along.length = along.chunks;
    along.chunks = 1;
    lines.group = LinePlan::group_for(along.length, false);
    cuda::position(largest, compute, lines, along, best, nullptr, queue());
  }
}

void CudaBackend::cumsum(const View& y, const View& x, int dim, bool reverse) {
  if (x.numel() == 0) return;
  const LinesAlong plan(y, x, dim);
  const DType sums = is_floating(x.dtype) ? f64 : i64;
  for (Lines lines : plan.lines) {
    const Along& along = plan.along;
    if (along.chunks == 1) {
      cuda::running_sum(sums, lines, along, reverse, nullptr, nullptr, queue());
      continue;
    }
    // The sum of each chunk, then the running sums of these, on which those of the elements are built.
    const Storage memory(allocator_, device(), static_cast<std::size_t>(plan.tasks(lines)) * size_of(sums));
    Lines without_y = lines;
    without_y.at[1].data = nullptr;
    cuda::running_sum(sums, without_y, along, reverse, nullptr, memory.data(), queue());
    const Shape shape{static_cast<std::int64_t>(lines.lines.numel), along.chunks};
    const View totals{memory.data(), sums, shape, contiguous_strides(shape), device()};
    cumsum(totals, totals, 1, false);
    cuda::running_sum(sums, lines, along, reverse, memory.data(), nullptr, queue());
  }
}

}  // namespace halfgrad
