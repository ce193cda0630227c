// Random fills: a thread turns one counter into four numbers. Element i has the bits that it has on the CPU.

#include "engine/cuda/random.h"

#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"
#include "engine/philox.h"

namespace halfgrad::cuda {

namespace {

/// What an element of type T is computed in.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The four numbers of a counter, for each distribution.
template <class T>
__device__ void draw(const UniformNumbers<Computed<T>>& number, std::uint64_t seed, std::uint64_t counter,
                     Computed<T> (&y)[4]) {
  const PhiloxBlock block = random_block(seed, counter);
  if constexpr (std::is_same_v<T, double>) {
    const PhiloxBlock low = random_block(seed, counter, 1);
    for (int lane = 0; lane < 4; ++lane) y[lane] = number(uniform_double(block.lane[lane], low.lane[lane]));
  } else {
    constexpr int digits = std::is_same_v<T, half> ? 11 : 24;  // random bits that the type can hold
    for (int lane = 0; lane < 4; ++lane) y[lane] = number(uniform_float(block.lane[lane], digits));
  }
}

template <class T>
__device__ void draw(const NormalNumbers<Computed<T>>& number, std::uint64_t seed, std::uint64_t counter,
                     Computed<T> (&y)[4]) {
  const PhiloxBlock block = random_block(seed, counter);
  for (int lane = 0; lane < 4; lane += 2) {
    const NormalPair pair = normal_pair(block.lane[lane], block.lane[lane + 1]);
    y[lane] = number(pair.first);
    y[lane + 1] = number(pair.second);
  }
}

template <class T>
__device__ void draw(const BernoulliNumbers<Computed<T>>& number, std::uint64_t seed, std::uint64_t counter,
                     Computed<T> (&y)[4]) {
  const PhiloxBlock block = random_block(seed, counter);
  for (int lane = 0; lane < 4; ++lane) y[lane] = number(block.lane[lane]);
}

/// Four numbers, which are written at once.
template <class T>
struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Four {
  T number[4];
};

template <class Numbers, class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(Numbers number, std::uint64_t seed, std::uint64_t offset,
                                                        const RandomBase* base, std::uint64_t numel, T* y) {
  if (base) {
    seed = base->seed;
    offset += base->offset;
  }
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(y) % alignof(Four<T>) == 0;
  for (std::uint64_t i = first_item(); i < (numel + 3) / 4; i += item_step()) {
    Computed<T> numbers[4];
    draw<T>(number, seed, offset + i, numbers);
    Four<T> four;
    for (int lane = 0; lane < 4; ++lane) four.number[lane] = converted<T>(numbers[lane]);
    if (is_aligned && 4 * i + 4 <= numel) {
      aligned<Four<T>>(y)[i] = four;
    } else {
      for (int lane = 0; lane < 4; ++lane)
        if (4 * i + lane < numel) y[4 * i + lane] = four.number[lane];
    }
  }
}

template <template <class C> class Numbers>
void run(const char* name, const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const RandomBase* base,
         const Queue& queue) {
  const auto n = static_cast<std::uint64_t>(numel);
  const auto run_in = [&]<class T>(T) {
    using N = Numbers<Computed<T>>;
    launch(name, fill_kernel<N, T>, grid_for((n + 3) / 4, queue), kThreads, queue.stream, N(fill), fill.seed,
           fill.offset, base, n, static_cast<T*>(y));
  };
  dtype == f16 ? run_in(half()) : dtype == f32 ? run_in(float()) : run_in(double());
}

template <class T>
__device__ Computed<T> number_of(T x) {
  if constexpr (std::is_same_v<T, half>)
    return to_float(x);
  else
    return x;
}

// A thread for each counter, of which the first and the last may belong to less than four elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(BernoulliNumbers<Computed<T>> number, std::uint64_t seed, std::uint64_t offset,
                   const RandomBase* base, Dropout elements, T* y, const T* x) {
  if (base) {
    seed = base->seed;
    offset += base->offset;
  }
  const std::uint64_t first = elements.first / 4, before = elements.first % 4, end = before + elements.space.numel;
  const bool by_four =
      elements.is_dense && before == 0 &&
      (reinterpret_cast<std::uintptr_t>(y) | reinterpret_cast<std::uintptr_t>(x)) % alignof(Four<T>) == 0;
  for (std::uint64_t i = first_item(); 4 * i < end; i += item_step()) {
    Computed<T> factor[4];
    draw<T>(number, seed, offset + first + i, factor);
    if (by_four && 4 * i + 4 <= end) {
      Four<T> four = aligned<Four<T>>(x)[i];
      for (int lane = 0; lane < 4; ++lane)
        four.number[lane] = converted<T>(number_of(four.number[lane]) * factor[lane]);
      aligned<Four<T>>(y)[i] = four;
    } else {
      for (int lane = 0; lane < 4; ++lane) {
        if (4 * i + lane < before || 4 * i + lane >= end) continue;
        std::uint32_t at[3];
        elements.space.positions(static_cast<std::uint32_t>(4 * i + lane - before), at);
        y[at[1]] = converted<T>(number_of(x[at[2]]) * factor[lane]);
      }
    }
  }
}

}  // namespace

void fill_uniform(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const RandomBase* base,
                  const Queue& queue) {
  run<UniformNumbers>("uniform", fill, y, dtype, numel, base, queue);
}
void fill_normal(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const RandomBase* base,
                 const Queue& queue) {
  run<NormalNumbers>("normal", fill, y, dtype, numel, base, queue);
}
void fill_bernoulli(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const RandomBase* base,
                    const Queue& queue) {
  run<BernoulliNumbers>("bernoulli", fill, y, dtype, numel, base, queue);
}

void dropout(const RandomFill& fill, const Dropout& elements, void* y, const void* x, DType dtype,
             const RandomBase* base, const Queue& queue) {
  const std::uint64_t counters = (elements.first % 4 + elements.space.numel + 3) / 4;
  const auto run_in = [&]<class T>(T) {
    launch("dropout", dropout_kernel<T>, grid_for(counters, queue), kThreads, queue.stream,
           BernoulliNumbers<Computed<T>>(fill), fill.seed, fill.offset, base, elements, static_cast<T*>(y),
           static_cast<const T*>(x));
  };
  dtype == f16 ? run_in(half()) : dtype == f32 ? run_in(float()) : run_in(double());
}

}  // namespace halfgrad::cuda
