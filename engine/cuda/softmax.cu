// Softmax and log_softmax: a group of threads goes along a line three times, for its largest number, for the sum of its
// exponentials, and for the results. It comes from memory once; the other times it is still in a cache.

#include "engine/cuda/softmax.h"

#include <limits>

#include "engine/cuda/lines.cuh"
#include "engine/math.h"

namespace halfgrad::cuda {

namespace {

// A NaN is skipped here, but not by the sum.
template <class C>
__device__ C larger(C a, C b) {
  return b > a ? b : a;
}

template <class C>
__global__ void __launch_bounds__(kThreads) softmax_kernel(Lines lines, bool log) {
  constexpr C kNone = -std::numeric_limits<C>::infinity();  // its exponential is 0
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t line = first_task(); line < lines.lines.numel; line += task_step()) {
    const Line<C> x(lines, 0, static_cast<std::uint32_t>(line)), y(lines, 1, static_cast<std::uint32_t>(line));
    Some<C> v;
    C most = kNone, sum = 0;
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, kNone, v);
      most = larger(most, combine_some(v, larger<C>));
    });
    most = reduce_group(most, larger<C>);
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, kNone, v);
#pragma unroll
      for (C& value : v) value = math::exp(value - most);
      sum += sum_of_some(v);
    });
    sum = sum_of_group(sum);
    const C log_sum = log ? math::log(sum) : C(0);
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, kNone, v);
#pragma unroll
      for (C& value : v) value = log ? value - most - log_sum : math::exp(value - most) / sum;
      y.store(turn, v);
    });
  }
}

// softmax: dx = y (dy - sum(dy y));  log_softmax: dx = dy - e^y sum(dy)
template <class C>
__global__ void __launch_bounds__(kThreads) softmax_backward_kernel(Lines lines, bool log) {
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t i = first_task(); i < lines.lines.numel; i += task_step()) {
    const auto line = static_cast<std::uint32_t>(i);
    const Line<C> y(lines, 0, line), dy(lines, 1, line), dx(lines, 2, line);
    Some<C> d, v;
    C sum = 0;
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      dy.load(turn, C(0), d);
      if (!log) {
        y.load(turn, C(0), v);
#pragma unroll
        for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) d[k] *= v[k];
      }
      sum += sum_of_some(d);
    });
    sum = sum_of_group(sum);
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      dy.load(turn, C(0), d);
      y.load(turn, C(0), v);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) d[k] = log ? d[k] - math::exp(v[k]) * sum : v[k] * (d[k] - sum);
      dx.store(turn, d);
    });
  }
}

}  // namespace

void softmax(DType compute, bool log, const Lines& lines, const Queue& queue) {
  launch(log ? "log_softmax" : "softmax", compute == f64 ? softmax_kernel<double> : softmax_kernel<float>,
         grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group), queue.stream, lines, log);
}

void softmax_backward(DType compute, bool log, const Lines& lines, const Queue& queue) {
  launch(log ? "the gradient of log_softmax" : "the gradient of softmax",
         compute == f64 ? softmax_backward_kernel<double> : softmax_backward_kernel<float>,
         grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group), queue.stream, lines, log);
}

}  // namespace halfgrad::cuda
