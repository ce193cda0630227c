// Sums, products, extrema, any and all. A group of threads reduces a chunk of a line; see lines.cuh.

#include "engine/cuda/reduce.h"

#include <limits>

#include "engine/cuda/lines.cuh"

namespace halfgrad::cuda {

namespace {

// The operations. A NaN wins the extrema: nothing is greater.
struct Sum {
  static constexpr const char* name = "sum";
  template <class C>
  static constexpr C identity = 0;
  template <class C>
  __device__ static C value(C x) {
    return x;
  }
  template <class C>
  __device__ static C combine(C a, C b) {
    return plus(a, b);
  }
};
struct Prod : Sum {
  static constexpr const char* name = "prod";
  template <class C>
  static constexpr C identity = 1;
  template <class C>
  __device__ static C combine(C a, C b) {
    return times(a, b);
  }
};
struct Max : Sum {
  static constexpr const char* name = "max";
  template <class C>
  static constexpr C identity = std::is_integral_v<C> ? std::numeric_limits<C>::min()
                                                      : -std::numeric_limits<C>::infinity();
  template <class C>
  __device__ static C combine(C a, C b) {
    return b > a || b != b ? b : a;
  }
};
struct Min : Sum {
  static constexpr const char* name = "min";
  template <class C>
  static constexpr C identity = std::is_integral_v<C> ? std::numeric_limits<C>::max()
                                                      : std::numeric_limits<C>::infinity();
  template <class C>
  __device__ static C combine(C a, C b) {
    return b < a || b != b ? b : a;
  }
};
struct Any {
  static constexpr const char* name = "any";
  template <class C>
  static constexpr C identity = 0;
  template <class C>
  __device__ static C value(C x) {
    return x != 0 ? C(1) : C(0);
  }
  template <class C>
  __device__ static C combine(C a, C b) {
    return b > a ? b : a;
  }
};
struct All : Any {
  static constexpr const char* name = "all";
  template <class C>
  static constexpr C identity = 1;
  template <class C>
  __device__ static C combine(C a, C b) {
    return b < a ? b : a;
  }
};

template <class Op, class C>
__global__ void __launch_bounds__(kThreads) reduce_kernel(Lines lines, Chunks chunks, double scale) {
  const auto combine = [](C a, C b) { return Op::combine(a, b); };
  const std::uint64_t tasks = std::uint64_t{lines.lines.numel} * chunks.count;
  for (std::uint64_t task = first_task(); task < tasks; task += task_step()) {
    const auto line = static_cast<std::uint32_t>(chunks.count == 1 ? task : task / chunks.count);
    const auto chunk = static_cast<std::uint32_t>(task - std::uint64_t{line} * chunks.count);
    const std::uint32_t begin = chunk * chunks.size, rest = lines.elements.numel - begin;
    const Line<C> x(lines, 0, line);
    C result = Op::template identity<C>;
    for_turns<C>(lines, begin, begin + (rest < chunks.size ? rest : chunks.size), [&](const Turn<C>& turn) {
      Some<C> values;
      x.load(turn, Op::template identity<C>, values);
#pragma unroll
      for (C& value : values) value = Op::value(value);
      result = combine(result, combine_some(values, combine));
    });
    result = reduce_group(result, combine);

    if (threadIdx.x != 0) continue;
    const Array y = from(lines.at[1], lines.lines.position(line, 1) + (chunks.first + chunk) * chunks.stride);
    if constexpr (std::is_floating_point_v<C>)
      store(y.data, y.dtype, 0, static_cast<double>(result) * scale);
    else
      store(y.data, y.dtype, 0, result);
  }
}

using Run = void (*)(const Lines&, const Chunks&, double scale, const Queue&);

template <class Op, class C>
void run(const Lines& lines, const Chunks& chunks, double scale, const Queue& queue) {
  const std::uint64_t tasks = std::uint64_t{lines.lines.numel} * chunks.count;
  launch(Op::name, reduce_kernel<Op, C>, grid_of(tasks, lines.group, queue), block_of(lines.group), queue.stream, lines,
         chunks, scale);
}

template <class Op>
constexpr Run run_in(DType compute) {
  return compute == f32 ? run<Op, float> : compute == f64 ? run<Op, double> : run<Op, std::int64_t>;
}

}  // namespace

void reduce(int op, DType compute, const Lines& lines, const Chunks& chunks, double scale, const Queue& queue) {
  const Run in_the_order_of_ReduceOp[] = {run_in<Sum>(compute), run_in<Prod>(compute), run_in<Max>(compute),
                                          run_in<Min>(compute), run_in<Any>(compute),  run_in<All>(compute)};
  in_the_order_of_ReduceOp[op](lines, chunks, scale, queue);
}

}  // namespace halfgrad::cuda
