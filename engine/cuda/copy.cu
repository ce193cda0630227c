// Kernels that move numbers: with conversion, as they are, or one of two.

#include "engine/cuda/elementwise.cuh"

namespace halfgrad::cuda {

namespace {

struct Same {
  template <class C>
  __device__ void operator()(const C (&from)[1], C (&to)[1]) const {
    to[0] = from[0];
  }
};

struct Select {  // condition, a, b
  template <class C>
  __device__ void operator()(const C (&in)[3], C (&y)[1]) const {
    y[0] = in[0] != C(0) ? in[1] : in[2];
  }
};

template <class Word>
__global__ void __launch_bounds__(kThreads) move_kernel(Space space, Word* to, const Word* from) {
  for (std::uint64_t i = first_item(); i < space.numel; i += item_step()) {
    std::uint32_t at[2];
    space.positions(static_cast<std::uint32_t>(i), at);
    to[at[0]] = from[at[1]];
  }
}

template <class Word>
void move_words(const Elementwise& work, const Queue& queue) {
  launch("copy", move_kernel<Word>, grid_for(work.space.numel, queue), kThreads, queue.stream, work.space,
         static_cast<Word*>(work.operands[0].data), static_cast<const Word*>(work.operands[1].data));
}

// f computed in `compute`.
template <int kIn, class F>
void run_in(DType compute, const char* name, const F& f, const Elementwise& work, const Queue& queue) {
  switch (compute) {
    case f64:
      return run<double, 1, kIn>(name, f, work, queue);
    case i64:
      return run<std::int64_t, 1, kIn>(name, f, work, queue);
    default:
      return run<float, 1, kIn>(name, f, work, queue);
  }
}

}  // namespace

void convert(DType compute, const Elementwise& work, const Queue& queue) {
  run_in<1>(compute, "copy", Same{}, work, queue);
}

void select(DType compute, const Elementwise& work, const Queue& queue) {
  run_in<3>(compute, "where", Select{}, work, queue);
}

void move(std::size_t bytes, const Elementwise& work, const Queue& queue) {
  switch (bytes) {
    case 1:
      return move_words<std::uint8_t>(work, queue);
    case 2:
      return move_words<std::uint16_t>(work, queue);
    case 4:
      return move_words<std::uint32_t>(work, queue);
    default:
      return move_words<std::uint64_t>(work, queue);
  }
}

}  // namespace halfgrad::cuda
