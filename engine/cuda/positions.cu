// Positions of extrema, and running sums: what goes along one dimension and cares about the order of its elements.

#include "engine/cuda/lines.cuh"
#include "engine/cuda/reduce.h"

namespace halfgrad::cuda {

namespace {

/// A chunk of a line, for the thread's group.
struct Task {
  std::uint32_t line;
  std::int64_t begin, end;
  __device__ Task(std::uint64_t task, const Along& along)
      : line(static_cast<std::uint32_t>(along.chunks == 1 ? task : task / static_cast<std::uint64_t>(along.chunks))) {
    begin = (static_cast<std::int64_t>(task) - line * along.chunks) * along.chunk;
    end = begin + along.chunk < along.length ? begin + along.chunk : along.length;
  }
};

__device__ inline std::uint64_t task_count(const Lines& lines, const Along& along) {
  return std::uint64_t{lines.lines.numel} * static_cast<std::uint64_t>(along.chunks);
}

// --- positions -------------------------------------------------------------------------------------------------------

template <class C>
struct Candidate {
  C value;
  std::int64_t position;  // negative: none
};

/// The better of two: the first NaN, or the first of the largest or smallest numbers.
template <bool largest, class C>
__device__ Candidate<C> better(const Candidate<C>& a, const Candidate<C>& b) {
  if (a.position < 0 || b.position < 0) return a.position < 0 ? b : a;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  const bool ties = a_is_nan || b_is_nan ? a_is_nan == b_is_nan : a.value == b.value;
  if (ties) return b.position < a.position ? b : a;
  return b_is_nan || (!a_is_nan && (largest ? b.value > a.value : b.value < a.value)) ? b : a;
}

template <bool largest, class C>
__global__ void __launch_bounds__(kThreads)
    position_kernel(Lines lines, Along along, const std::int64_t* candidates, std::int64_t* chunk_results) {
  for (std::uint64_t i = first_task(); i < task_count(lines, along); i += task_step()) {
    const Task task(i, along);
    const Array x = from(lines.at[0], lines.lines.position(task.line, 0));
    Candidate<C> best{C(0), -1};
    for (std::int64_t k = task.begin + threadIdx.x; k < task.end; k += blockDim.x) {
      const std::int64_t position = candidates ? candidates[task.line * along.length + k] : k;
      best = better<largest>(best, {load_computed<C>(from(x, position * along.x_stride), 0), position});
    }
    best = reduce_group(best, [](const auto& a, const auto& b) { return better<largest>(a, b); });
    if (threadIdx.x != 0) continue;
    if (chunk_results)
      chunk_results[i] = best.position;
    else
      static_cast<std::int64_t*>(lines.at[1].data)[lines.lines.position(task.line, 1)] = best.position;
  }
}

template <bool largest, class C>
void run_position(const Lines& lines, const Along& along, const std::int64_t* candidates, std::int64_t* chunk_results,
                  const Queue& queue) {
  const std::uint64_t tasks = lines.lines.numel * static_cast<std::uint64_t>(along.chunks);
  launch(largest ? "argmax" : "argmin", position_kernel<largest, C>, grid_of(tasks, lines.group, queue),
         block_of(lines.group), queue.stream, lines, along, candidates, chunk_results);
}

// --- running sums ----------------------------------------------------------------------------------------------------

/// For each thread of the group the sum of its value and of those of all threads before it; `total` becomes that of all.
template <class S>
__device__ S running_sum_of_group(S value, S& total) {
  if (blockDim.x == 1) return total = value;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {  // Hillis and Steele, "Data parallel algorithms", 1986
    const S before = of_lane(value, lane < step ? lane : lane - step);
    if (lane >= step) value = plus(before, value);
  }
  total = of_lane(value, kWarp - 1);
  if (blockDim.x == kWarp) return value;

  HALFGRAD_SHARED(S, of_warps, 32);
  __syncthreads();
  if (lane == 0) of_warps[warp] = total;
  __syncthreads();
  S before = S(0);
  total = S(0);
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
    if (w == warp) before = total;
    total = plus(total, of_warps[w]);
  }
  return plus(before, value);
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    running_sum_kernel(Lines lines, Along along, bool reverse, const S* before, S* totals) {
  for (std::uint64_t i = first_task(); i < task_count(lines, along); i += task_step()) {
    const Task task(i, along);
    const Array x = from(lines.at[0], lines.lines.position(task.line, 0));
    const Array y = from(lines.at[1], lines.lines.position(task.line, 1));
    S sum = before && task.begin > 0 ? before[i - 1] : S(0);
    for (std::int64_t first = task.begin; first < task.end; first += blockDim.x) {
      const std::int64_t k = first + threadIdx.x, at = reverse ? along.length - 1 - k : k;
      const S value = k < task.end ? load<S>(from(x, at * along.x_stride).data, x.dtype, 0) : S(0);
      S total;
      const S running = running_sum_of_group(value, total);
      if (lines.at[1].data && k < task.end) store(from(y, at * along.y_stride).data, y.dtype, 0, plus(sum, running));
      sum = plus(sum, total);
    }
    if (totals && threadIdx.x == 0) totals[i] = sum;
  }
}

template <class S>
void run_running_sum(const Lines& lines, const Along& along, bool reverse, const void* before, void* totals,
                     const Queue& queue) {
  const std::uint64_t tasks = lines.lines.numel * static_cast<std::uint64_t>(along.chunks);
  launch("cumsum", running_sum_kernel<S>, grid_of(tasks, lines.group, queue), block_of(lines.group), queue.stream,
         lines, along, reverse, static_cast<const S*>(before), static_cast<S*>(totals));
}

}  // namespace

void position(bool largest, DType compute, const Lines& lines, const Along& along, const std::int64_t* candidates,
              std::int64_t* chunk_results, const Queue& queue) {
  const auto run = [&]<class C>(C) {
    (largest ? run_position<true, C> : run_position<false, C>)(lines, along, candidates, chunk_results, queue);
  };
  compute == f32 ? run(float()) : compute == f64 ? run(double()) : run(std::int64_t());
}

void running_sum(DType compute, const Lines& lines, const Along& along, bool reverse, const void* before, void* totals,
                 const Queue& queue) {
  (compute == i64 ? run_running_sum<std::int64_t> : run_running_sum<double>)(lines, along, reverse, before, totals,
                                                                             queue);
}

}  // namespace halfgrad::cuda
