// Softmax, log_softmax and cross entropy: a group of threads goes along a line of x for its largest number, for the sum of its
// exponentials, and for the results. It comes from memory once; the other times it is still in a cache.

#include "engine/cuda/softmax.h"

#include <limits>

#include "engine/cuda/index.cuh"
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
inline constexpr C kNone = -std::numeric_limits<C>::infinity();  // its exponential is 0

/// The largest number of a line, and the sum of e^(x - most).
template <class C>
struct Normalizer {
  C most, sum;
};
template <class C>
__device__ Normalizer<C> normalizer(const Lines& lines, const Line<C>& x) {
  const std::uint32_t n = lines.elements.numel;
  Some<C> v;
  C most = kNone<C>, sum = 0;
  for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
    x.load(turn, kNone<C>, v);
    most = larger(most, combine_some(v, larger<C>));
  });
  most = reduce_group(most, larger<C>);
  for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
    x.load(turn, kNone<C>, v);
#pragma unroll
    for (C& value : v) value = math::exp(value - most);
    sum += sum_of_some(v);
  });
  return {most, sum_of_group(sum)};
}

template <class C>
__global__ void __launch_bounds__(kThreads) softmax_kernel(Lines lines, bool log) {
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t line = first_task(); line < lines.lines.numel; line += task_step()) {
    const Line<C> x(lines, 0, static_cast<std::uint32_t>(line)), y(lines, 1, static_cast<std::uint32_t>(line));
    const auto [most, sum] = normalizer(lines, x);
    const C log_sum = log ? math::log(sum) : C(0);
    for_turns<C>(lines, 0, n, [&, most = most, sum = sum](const Turn<C>& turn) {
      Some<C> v;
      x.load(turn, kNone<C>, v);
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

// The target of a line; the ignored one for a target that is out of range, of which the first thread of the group takes note.
__device__ std::int64_t target_of(const Lines& lines, std::uint32_t line, const CrossEntropy& o) {
  const std::int64_t n = lines.elements.numel;
  const std::int64_t target = static_cast<const std::int64_t*>(lines.at[1].data)[lines.lines.position(line, 1)];
  if (target == o.ignore_index || (target >= 0 && target < n)) return target;
  if (o.bad && threadIdx.x == 0) note(o.bad, {o.note.op, target, o.note.element + lines.lines.position(line, 2), n});
  return o.ignore_index;
}

/// The sum over a line of weight * log_p.
template <class C>
__device__ C weighted_sum(const Lines& lines, const Line<C>& x, const Vector& weight, C most, C log_sum) {
  C sum = 0;
  for_turns<C>(lines, 0, lines.elements.numel, [&](const Turn<C>& turn) {
    Some<C> v, w;
    x.load(turn, C(0), v);
    load_vector(weight, turn, C(1), w);
#pragma unroll
    for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) v[k] = turn.has(k) ? (v[k] - most - log_sum) * w[k] : C(0);
    sum += sum_of_some(v);
  });
  return sum_of_group(sum);
}

template <class C, bool kSmooth>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(Lines lines, CrossEntropy o) {
  for (std::uint64_t i = first_task(); i < lines.lines.numel; i += task_step()) {
    const auto line = static_cast<std::uint32_t>(i);
    const Line<C> x(lines, 0, line);
    const std::int64_t target = target_of(lines, line, o);
    C most = 0, log_sum = 0, share = 0, loss = 0;
    if (target != o.ignore_index) {  // which is the same for all threads of the group
      const Normalizer<C> of_line = normalizer(lines, x);
      most = of_line.most;
      log_sum = math::log(of_line.sum);
      const C all = kSmooth ? weighted_sum(lines, x, o.weight, most, log_sum) : C(0);
      share = o.weight.array.data ? number_at<C>(o.weight, target) : C(1);
      const std::uint32_t at_target = lines.elements.position(static_cast<std::uint32_t>(target), 0);
      loss = -(load_computed<C>(x.array, at_target) - most - log_sum) * share;
      if (kSmooth)
        loss = static_cast<C>(1 - o.smoothing) * loss - static_cast<C>(o.smoothing / lines.elements.numel) * all;
    }
    if (threadIdx.x != 0) continue;
    const std::uint32_t position = lines.lines.position(line, 2);
    static_cast<C*>(lines.at[2].data)[position] = loss;
    if (o.share) static_cast<C*>(o.share)[position] = share;
    if (!o.most) continue;
    static_cast<C*>(o.most)[position] = most;
    static_cast<C*>(o.log_sum)[position] = log_sum;
  }
}

// A loss that takes `of_target` of -log_p[target] and `of_each` of weight * -log_p of every class has the gradient
// dx = p * (of_target + of_each * sum(weight)) - of_each * weight, less of_target at the target.
template <class C, bool kSmooth>
__global__ void __launch_bounds__(kThreads) cross_entropy_backward_kernel(Lines lines, CrossEntropy o) {
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t i = first_task(); i < lines.lines.numel; i += task_step()) {
    const auto line = static_cast<std::uint32_t>(i);
    const Line<C> x(lines, 0, line), dx(lines, 2, line);
    const std::uint32_t position = lines.lines.position(line, 4);
    const std::int64_t target = target_of(lines, line, o);
    const bool counts = target != o.ignore_index;
    const C most = static_cast<const C*>(lines.at[4].data)[position];
    const C log_sum = static_cast<const C*>(o.log_sum)[position];
    const C dy = load_computed<C>(Line<C>(lines, 3, line).array, 0);
    const C scaled = o.divisor ? dy / *static_cast<const C*>(o.divisor) : dy;
    const C share = counts && o.weight.array.data ? number_at<C>(o.weight, target) : C(1);
    const C of_target = scaled * static_cast<C>(1 - o.smoothing) * share;
    const C of_each = scaled * static_cast<C>(o.smoothing / n);
    C total = of_target;
    if (kSmooth && counts) {
      C weights = static_cast<C>(n);
      if (o.weight.array.data) {
        weights = 0;
        for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
          Some<C> w;
          load_vector(o.weight, turn, C(0), w);
          weights += sum_of_some(w);
        });
        weights = sum_of_group(weights);
      }
      total += of_each * weights;
    }
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      Some<C> v, w;
      x.load(turn, C(0), v);
      if (kSmooth) load_vector(o.weight, turn, C(1), w);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) {
        C d = math::exp(v[k] - most - log_sum) * total;
        if (kSmooth) d -= w[k] * of_each;
        if (turn.element(k) == target) d -= of_target;
        v[k] = counts ? d : C(0);
      }
      dx.store(turn, v);
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

void cross_entropy(DType compute, const Lines& lines, const CrossEntropy& o, const Queue& queue) {
  const bool smooth = o.smoothing > 0;
  const auto kernel = compute == f64 ? smooth ? cross_entropy_kernel<double, true> : cross_entropy_kernel<double, false>
                      : smooth ? cross_entropy_kernel<float, true>
                                     : cross_entropy_kernel<float, false>;
  launch("cross_entropy", kernel, grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group), queue.stream,
         lines, o);
}

void cross_entropy_backward(DType compute, const Lines& lines, const CrossEntropy& o, const Queue& queue) {
  const bool smooth = o.smoothing > 0;
  const auto kernel = compute == f64 ? smooth ? cross_entropy_backward_kernel<double, true>
                                              : cross_entropy_backward_kernel<double, false>
                      : smooth ? cross_entropy_backward_kernel<float, true>
                                     : cross_entropy_backward_kernel<float, false>;
  launch("the gradient of cross_entropy", kernel, grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group),
         queue.stream, lines, o);
}

}  // namespace halfgrad::cuda
