// Pooling: one thread per result. Gradients are gathered, in the order of the windows, so they are the same every time.

#include "engine/cuda/pool.h"

#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"

namespace halfgrad::cuda {

namespace {

using Index = Elements::Index;

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
__device__ T& at(const Images& x, const Index& i) {
  return static_cast<T*>(x.data)[i.n * x.image + i.c * x.channel + i.h * x.row + i.w * x.column];
}
template <class T>
__device__ Compute<T> value_at(const Images& x, const Index& i) {
  if constexpr (std::is_same_v<T, half>)
    return to_float(at<const T>(x, i));
  else
    return at<const T>(x, i);
}

/// What a window covers along an axis: begin, begin + step, ... below end. `size`: how many an average divides by.
struct Span {
  std::int32_t begin, end, step, size;
};

__device__ Span window(const PoolAxis& axis, std::uint32_t index) {
  const auto i = static_cast<std::int32_t>(index);
  if (axis.adaptive) {
    const std::int32_t begin = i * axis.in / axis.out, end = ((i + 1) * axis.in + axis.out - 1) / axis.out;
    return {begin, end, 1, end - begin};
  }
  const std::int32_t start = i * axis.stride - axis.padding, stop = start + axis.dilation * (axis.kernel - 1) + 1;
  const std::int32_t begin = start >= 0 ? start : start + (-start + axis.dilation - 1) / axis.dilation * axis.dilation;
  const std::int32_t end = stop < axis.in ? stop : axis.in;
  return {begin, end, axis.dilation,
          axis.count_include_pad ? axis.kernel : (end - begin + axis.dilation - 1) / axis.dilation};
}

/// The windows that cover a position: those from begin to end. Without dilation.
struct Windows {
  std::uint32_t begin, end;
};
__device__ Windows windows_of(const PoolAxis& axis, std::uint32_t position) {
  const auto p = static_cast<std::int32_t>(position);
  std::int32_t begin, end;
  if (axis.adaptive) {
    begin = p * axis.out / axis.in;
    end = ((p + 1) * axis.out + axis.in - 1) / axis.in;
  } else {
    const std::int32_t first = p + axis.padding - axis.kernel + 1;
    begin = first > 0 ? (first + axis.stride - 1) / axis.stride : 0;
    end = (p + axis.padding) / axis.stride + 1;
  }
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end < axis.out ? end : axis.out)};
}

// --- forward ---------------------------------------------------------------------------------------------------------

/// f(position of x) for all in the window of an output.
template <class F>
__device__ void for_window(const Index& y, const Span& rows, const Span& columns, F&& f) {
  for (std::int32_t h = rows.begin; h < rows.end; h += rows.step)
    for (std::int32_t w = columns.begin; w < columns.end; w += columns.step)
      f(Index{y.n, y.c, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(w)});
}

template <class T>
__global__ void __launch_bounds__(kThreads) max_kernel(Pool pool) {
  for (std::uint64_t i = first_item(); i < pool.outputs.count; i += item_step()) {
    const Index y = pool.outputs.index(static_cast<std::uint32_t>(i));
    const Span rows = window(pool.rows, y.h), columns = window(pool.columns, y.w);
    const auto width = static_cast<std::int64_t>(pool.columns.in);
    std::int64_t position = rows.begin * width + columns.begin;
    Compute<T> best = value_at<T>(
        pool.x, {y.n, y.c, static_cast<std::uint32_t>(rows.begin), static_cast<std::uint32_t>(columns.begin)});
    for_window(y, rows, columns, [&](const Index& x) {
      const Compute<T> value = value_at<T>(pool.x, x);
      if (!(value <= best) && best == best) {  // larger, or the first NaN
        best = value;
        position = x.h * width + x.w;
      }
    });
    at<T>(pool.y, y) = converted<T>(best);
    if (pool.index.data) at<std::int32_t>(pool.index, y) = static_cast<std::int32_t>(position);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_kernel(Pool pool) {
  for (std::uint64_t i = first_item(); i < pool.outputs.count; i += item_step()) {
    const Index y = pool.outputs.index(static_cast<std::uint32_t>(i));
    const Span rows = window(pool.rows, y.h), columns = window(pool.columns, y.w);
    Compute<T> sum = 0;
    for_window(y, rows, columns, [&](const Index& x) { sum += value_at<T>(pool.x, x); });
    at<T>(pool.y, y) = converted<T>(sum / static_cast<Compute<T>>(std::int64_t{rows.size} * columns.size));
  }
}

// --- backward --------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) average_backward_kernel(Pool pool) {
  for (std::uint64_t i = first_item(); i < pool.inputs.count; i += item_step()) {
    const Index x = pool.inputs.index(static_cast<std::uint32_t>(i));
    const Windows rows = windows_of(pool.rows, x.h), columns = windows_of(pool.columns, x.w);
    Compute<T> sum = 0;
    for (std::uint32_t h = rows.begin; h < rows.end; ++h)
      for (std::uint32_t w = columns.begin; w < columns.end; ++w)
        sum += value_at<T>(pool.y, {x.n, x.c, h, w}) /
               static_cast<Compute<T>>(std::int64_t{window(pool.rows, h).size} * window(pool.columns, w).size);
    at<T>(pool.x, x) = converted<T>(sum);
  }
}

// The gradient of the maximum knows, for each window, where its maximum was, but not how the windows lie. So a first kernel
// makes a list for each element of x of the windows that chose it: lists[x] is one of them, next[y] another one, -1 the end.
// Threads add to a list in any order; a second kernel takes the windows out of it in theirs.
constexpr std::int32_t kEnd = -1;

__global__ void __launch_bounds__(kThreads) list_windows_kernel(Pool pool, std::int32_t* lists, std::int32_t* next) {
  for (std::uint64_t i = first_item(); i < pool.outputs.count; i += item_step()) {
    const auto number = static_cast<std::uint32_t>(i);
    const Index y = pool.outputs.index(number);
    const auto position = static_cast<std::uint32_t>(at<const std::int32_t>(pool.index, y));
    const std::uint32_t h = pool.inputs.width.quotient(position), w = position - h * pool.inputs.width.divisor;
    next[number] = atomicExch(&lists[pool.inputs.number({y.n, y.c, h, w})], static_cast<std::int32_t>(number));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(Pool pool, const std::int32_t* lists, const std::int32_t* next) {
  for (std::uint64_t i = first_item(); i < pool.inputs.count; i += item_step()) {
    Compute<T> sum = 0;
    for (std::int32_t done = kEnd;;) {
      std::int32_t smallest = INT32_MAX;  // of the windows that are not done
      for (std::int32_t window = lists[i]; window != kEnd; window = next[window])
        if (window > done && window < smallest) smallest = window;
      if (smallest == INT32_MAX) break;
      sum += value_at<T>(pool.y, pool.outputs.index(static_cast<std::uint32_t>(smallest)));
      done = smallest;
    }
    at<T>(pool.x, pool.inputs.index(static_cast<std::uint32_t>(i))) = converted<T>(sum);
  }
}

/// kernel<T> for the dtype of the images.
#define HALFGRAD_KERNEL(kernel, dtype) (dtype == f16 ? kernel<half> : dtype == f32 ? kernel<float> : kernel<double>)

}  // namespace

void max_pool(const Pool& pool, const Queue& queue) {
  launch("max_pool2d", HALFGRAD_KERNEL(max_kernel, pool.dtype), grid_for(pool.outputs.count, queue), kThreads,
         queue.stream, pool);
}

void max_pool_backward(const Pool& pool, void* memory, const Queue& queue) {
  auto *const lists = static_cast<std::int32_t*>(memory), *const next = lists + pool.inputs.count;
  check_call(cudaMemsetAsync(lists, 0xFF, std::size_t{pool.inputs.count} * sizeof(std::int32_t), queue.stream),
             "cudaMemsetAsync");  // kEnd everywhere
  launch("max_pool2d_backward", list_windows_kernel, grid_for(pool.outputs.count, queue), kThreads, queue.stream, pool,
         lists, next);
  launch("max_pool2d_backward", HALFGRAD_KERNEL(max_backward_kernel, pool.dtype), grid_for(pool.inputs.count, queue),
         kThreads, queue.stream, pool, lists, next);
}

void average_pool(const Pool& pool, const Queue& queue) {
  launch("avg_pool2d", HALFGRAD_KERNEL(average_kernel, pool.dtype), grid_for(pool.outputs.count, queue), kThreads,
         queue.stream, pool);
}

void average_pool_backward(const Pool& pool, const Queue& queue) {
  launch("avg_pool2d_backward", HALFGRAD_KERNEL(average_backward_kernel, pool.dtype),
         grid_for(pool.inputs.count, queue), kThreads, queue.stream, pool);
}

}  // namespace halfgrad::cuda
