// Gather and scatter. No atomics: elements that meet in one place are added by one thread, in the order of src, so that the
// sums are those of the CPU, bit for bit.

#include "engine/cuda/index.h"

#include "engine/cuda/index.cuh"
#include "engine/cuda/lines.cuh"

namespace halfgrad::cuda {

namespace {

__global__ void __launch_bounds__(kThreads)
    check_index_kernel(std::uint64_t op, Space space, std::int64_t* out, const void* index, DType dtype,
                       std::int64_t size, BadIndex* bad, std::int64_t first) {
  for (std::uint64_t i = first_item(); i < space.numel; i += item_step()) {
    std::uint32_t at[2];
    space.positions(static_cast<std::uint32_t>(i), at);
    const auto value = load<std::int64_t>(index, dtype, at[1]);
    const bool is_good = value >= 0 && value < size;
    out[at[0]] = is_good ? value : 0;
    if (is_good) continue;
    note(bad, {op, value, first + at[0], size});
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Space space, void* y, const std::int64_t* index, const void* x, std::int64_t along) {
  for (std::uint64_t i = first_item(); i < space.numel; i += item_step()) {
    std::uint32_t at[3];
    space.positions(static_cast<std::uint32_t>(i), at);
    aligned<Word>(y)[at[0]] = aligned<Word>(x)[at[2] + index[at[1]] * along];
  }
}

// A thread for each line.
template <class T>
__global__ void __launch_bounds__(kThreads) scatter_lines_kernel(Lines lines, Scatter scatter) {
  for (std::uint64_t line = first_item(); line < lines.lines.numel; line += item_step()) {
    std::uint32_t at[3];
    lines.lines.positions(static_cast<std::uint32_t>(line), at);
    const T* const src = static_cast<const T*>(lines.at[0].data) + at[0];
    const std::int64_t* const index = static_cast<const std::int64_t*>(lines.at[1].data) + at[1];
    T* const y = static_cast<T*>(lines.at[2].data) + at[2];
    for (std::int64_t i = 0; i < scatter.length; ++i) {
      T& sum = y[index[i * scatter.index_stride] * scatter.along];
      sum = plus(sum, src[i * scatter.src_stride]);
    }
  }
}

/// Whether any thread of the block says so.
__device__ bool any_of_block(bool says) {
  return reduce_group(unsigned{says}, [](unsigned a, unsigned b) { return a | b; }) != 0;
}

// A block for each row of src. Of the rows with the same index, the block of the first adds them all, in their order, to
// a row of y that no other block touches.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_rows_kernel(Lines lines, const std::int64_t* index, Scatter scatter) {
  const auto index_of = [&](std::int64_t row) { return index[row * scatter.index_stride]; };
  HALFGRAD_SHARED(unsigned, has_same, kThreads / kWarp);  // a bit for each row that is looked at
  for (std::int64_t row = blockIdx.x; row < scatter.length; row += gridDim.x) {
    const std::int64_t target = index_of(row);
    bool is_later = false;
    for (std::int64_t i = threadIdx.x; i < row && !is_later; i += blockDim.x) is_later = index_of(i) == target;
    if (any_of_block(is_later)) continue;

    for (std::int64_t first = row; first < scatter.length; first += blockDim.x) {
      const std::int64_t own = first + threadIdx.x;
      const unsigned same = __ballot_sync(kAllLanes, own < scatter.length && index_of(own) == target);
      __syncthreads();  // until everybody has read the bits of the turn before
      if (threadIdx.x % kWarp == 0) has_same[threadIdx.x / kWarp] = same;
      __syncthreads();
      unsigned any = 0;
      for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) any |= has_same[warp];
      if (any == 0) continue;
      for (std::uint32_t column = threadIdx.x; column < lines.lines.numel; column += blockDim.x) {
        std::uint32_t at[2];
        lines.lines.positions(column, at);
        const T* const src = static_cast<const T*>(lines.at[0].data) + at[0];
        T* const y = static_cast<T*>(lines.at[1].data) + at[1] + target * scatter.along;
        T sum = *y;
        for (unsigned warp = 0; warp < kThreads / kWarp; ++warp)
          for (unsigned bits = has_same[warp]; bits != 0; bits &= bits - 1) {
            const std::int64_t i = first + warp * kWarp + __ffs(static_cast<int>(bits)) - 1;
            sum = plus(sum, src[i * scatter.src_stride]);
          }
        *y = sum;
      }
    }
  }
}

/// Calls f with a number of a dtype in which there are sums.
template <class F>
void visit_sums(DType dtype, F&& f) {
  switch (dtype) {
    case f64:
      return f(double());
    case i32:
      return f(std::int32_t());
    case i64:
      return f(std::int64_t());
    case u8:
      return f(std::uint8_t());
    default:
      return f(float());
  }
}

}  // namespace

void gather(std::size_t bytes, const Space& space, void* y, const std::int64_t* index, const void* x,
            std::int64_t along, const Queue& queue) {
  const auto run = [&]<class Word>(Word) {
    launch("gather", gather_kernel<Word>, grid_for(space.numel, queue), kThreads, queue.stream, space, y, index, x,
           along);
  };
  switch (bytes) {
    case 1:
      return run(std::uint8_t());
    case 2:
      return run(std::uint16_t());
    case 4:
      return run(std::uint32_t());
    case 8:
      return run(std::uint64_t());
    default:
      return run(uint4());
  }
}

void scatter_lines(DType dtype, const Lines& lines, const Scatter& scatter, const Queue& queue) {
  visit_sums(dtype, [&]<class T>(T) {
    launch("scatter_add", scatter_lines_kernel<T>, grid_for(lines.lines.numel, queue), kThreads, queue.stream, lines,
           scatter);
  });
}

void scatter_rows(DType dtype, const Lines& lines, const std::int64_t* index, const Scatter& scatter,
                  const Queue& queue) {
  visit_sums(dtype, [&]<class T>(T) {
    launch("index_add", scatter_rows_kernel<T>, grid_for(static_cast<std::uint64_t>(scatter.length) * kThreads, queue),
           kThreads, queue.stream, lines, index, scatter);
  });
}

void check_index(const char* op, const Space& space, std::int64_t* out, const void* index, DType dtype,
                 std::int64_t size, BadIndex* bad, std::int64_t first, const Queue& queue) {
  launch(op, check_index_kernel, grid_for(space.numel, queue), kThreads, queue.stream,
         reinterpret_cast<std::uint64_t>(op), space, out, index, dtype, size, bad, first);
}

}  // namespace halfgrad::cuda
