// Random fills: a thread turns one counter into four numbers. Element i has the bits that it has on the CPU.

#include "engine/cuda/random.h"

#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"
#include "engine/philox.h"

namespace halfgrad::cuda {

namespace {

/// What an element of type T is computed in, and how many random bits of a float it can hold.
template <class T>
struct Element {
  using C = float;
  static constexpr int digits = 24;
};
template <>
struct Element<half> {
  using C = float;
  static constexpr int digits = 11;
};
template <>
struct Element<double> {
  using C = double;
};

// Each computes the four numbers of a counter.
template <class T>
struct Uniform {
  using C = typename Element<T>::C;
  static constexpr const char* name = "uniform";
  UniformNumbers<C> number;
  std::uint64_t seed;
  explicit Uniform(const RandomFill& fill) : number(fill), seed(fill.seed) {}
  __device__ void operator()(std::uint64_t counter, C (&y)[4]) const {
    const PhiloxBlock block = random_block(seed, counter);
    if constexpr (std::is_same_v<T, double>) {
      const PhiloxBlock low = random_block(seed, counter, 1);
      for (int lane = 0; lane < 4; ++lane) y[lane] = number(uniform_double(block.lane[lane], low.lane[lane]));
    } else {
      for (int lane = 0; lane < 4; ++lane) y[lane] = number(uniform_float(block.lane[lane], Element<T>::digits));
    }
  }
};

template <class T>
struct Normal {
  using C = typename Element<T>::C;
  static constexpr const char* name = "normal";
  NormalNumbers<C> number;
  std::uint64_t seed;
  explicit Normal(const RandomFill& fill) : number(fill), seed(fill.seed) {}
  __device__ void operator()(std::uint64_t counter, C (&y)[4]) const {
    const PhiloxBlock block = random_block(seed, counter);
    for (int lane = 0; lane < 4; lane += 2) {
      const NormalPair pair = normal_pair(block.lane[lane], block.lane[lane + 1]);
      y[lane] = number(pair.first);
      y[lane + 1] = number(pair.second);
    }
  }
};

template <class T>
struct Bernoulli {
  using C = typename Element<T>::C;
  static constexpr const char* name = "bernoulli";
  BernoulliNumbers<C> number;
  std::uint64_t seed;
  explicit Bernoulli(const RandomFill& fill) : number(fill), seed(fill.seed) {}
  __device__ void operator()(std::uint64_t counter, C (&y)[4]) const {
    const PhiloxBlock block = random_block(seed, counter);
    for (int lane = 0; lane < 4; ++lane) y[lane] = number(block.lane[lane]);
  }
};

/// Four numbers, which are written at once.
template <class T>
struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Four {
  T number[4];
};

template <class F, class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(F f, std::uint64_t offset, std::uint64_t numel, T* y) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(y) % alignof(Four<T>) == 0;
  for (std::uint64_t i = first_item(); i < (numel + 3) / 4; i += item_step()) {
    typename Element<T>::C numbers[4];
    f(offset + i, numbers);
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

template <template <class> class Distribution, class T>
void run(const RandomFill& fill, T* y, std::uint64_t numel, const Queue& queue) {
  using F = Distribution<T>;
  launch(F::name, fill_kernel<F, T>, grid_for((numel + 3) / 4, queue), kThreads, queue.stream, F(fill), fill.offset,
         numel, y);
}

template <template <class> class Distribution>
void run_in(DType dtype, const RandomFill& fill, void* y, std::int64_t numel, const Queue& queue) {
  const auto n = static_cast<std::uint64_t>(numel);
  if (dtype == f16)
    run<Distribution>(fill, static_cast<half*>(y), n, queue);
  else if (dtype == f32)
    run<Distribution>(fill, static_cast<float*>(y), n, queue);
  else
    run<Distribution>(fill, static_cast<double*>(y), n, queue);
}

}  // namespace

void fill_uniform(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const Queue& queue) {
  run_in<Uniform>(dtype, fill, y, numel, queue);
}
void fill_normal(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const Queue& queue) {
  run_in<Normal>(dtype, fill, y, numel, queue);
}
void fill_bernoulli(const RandomFill& fill, void* y, DType dtype, std::int64_t numel, const Queue& queue) {
  run_in<Bernoulli>(dtype, fill, y, numel, queue);
}

}  // namespace halfgrad::cuda
