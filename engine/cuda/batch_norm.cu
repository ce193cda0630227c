// Batch normalisation for what cuDNN does not take: f64, parameters that are not f32, evaluation, any layout.
//
// Sums over the positions of a channel take two kernels. In the first each thread takes every so many positions of its chunk,
// and the threads of a block that have the same channel combine what they found, as a tree. In the second one thread per
// channel combines the chunks in their order, in double.

#include "engine/cuda/batch_norm.h"

#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"

namespace halfgrad::cuda {

namespace {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class C, class T>
__device__ C number(const T& x) {
  if constexpr (std::is_same_v<T, half>)
    return to_float(x);
  else
    return x;
}

template <class T>
__device__ T& at(const ChannelTensor& x, std::uint32_t n, std::uint32_t c, std::uint32_t s) {
  return static_cast<T*>(x.data)[n * x.image + c * x.channel + s * x.position];
}

template <class C>
__device__ C get(const ChannelNumbers& x, std::uint32_t c) {
  return x.data ? load<C>(x.data, x.dtype, static_cast<std::uint32_t>(c * x.stride)) : static_cast<C>(x.absent);
}
__device__ void set(const ChannelNumbers& x, std::uint32_t c, double value) {
  if (x.data) store(x.data, x.dtype, static_cast<std::uint32_t>(c * x.stride), value);
}

/// A thread's part of a piece: its channel, and the positions `first`, first + step, ... below `end`.
struct Part {
  std::uint32_t channel, chunk, row, first, end, step;
  bool exists;  // the last piece may have fewer channels than the others

  __device__ Part(const Channels& space, std::uint32_t piece) {
    const std::uint32_t tile = piece / space.chunks;
    chunk = piece % space.chunks;
    channel = tile * space.width + threadIdx.x % space.width;
    row = threadIdx.x / space.width;
    step = kThreads / space.width;
    first = chunk * space.chunk + row;
    end = chunk * space.chunk + space.chunk;
    if (end > space.positions) end = space.positions;
    exists = channel < space.channels;
  }
  /// f(image, position) for all of them.
  template <class F>
  __device__ void for_each(const Channels& space, F&& f) const {
    for (std::uint32_t p = first; p < end; p += step) {
      const std::uint32_t n = space.inner.quotient(p);
      f(n, p - n * space.inner.divisor);
    }
  }
};

__host__ __device__ std::uint32_t pieces_of(const Channels& space) {
  return (space.channels + space.width - 1) / space.width * space.chunks;
}

// --- sums over the positions -----------------------------------------------------------------------------------------

/// Count, mean and sum of squared distances from the mean of some numbers. So a large mean costs no digits of the variance.
template <class C>
struct Moments {
  C count, mean, squares;

  /// Welford, "Note on a method for calculating corrected sums of squares and products", 1962.
  __device__ void add(C x) {
    count += 1;
    const C distance = x - mean;
    mean += distance / count;
    squares += distance * (x - mean);
  }
  /// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
  template <class D>
  __device__ void merge(const Moments<D>& other) {
    if (other.count == 0) return;
    const C total = count + other.count, share = other.count / total, distance = other.mean - mean;
    squares += other.squares + distance * distance * count * share;
    mean += distance * share;
    count = total;
  }
};

template <class C>
struct GradientSums {
  C dy, dy_distance;  // distance: x - mean

  template <class D>
  __device__ void merge(const GradientSums<D>& other) {
    dy += other.dy;
    dy_distance += other.dy_distance;
  }
};

template <class T>
struct MomentsOf {
  using Sums = Moments<Compute<T>>;
  static constexpr const char* name = "batch_norm statistics";
  ChannelTensor x;
  __device__ void operator()(Sums& sums, const Channels& space, const Part& part) const {
    part.for_each(space, [&](std::uint32_t n, std::uint32_t s) {
      sums.add(number<Compute<T>>(at<const T>(x, n, part.channel, s)));
    });
  }
};

template <class T>
struct GradientSumsOf {
  using C = Compute<T>;
  using Sums = GradientSums<C>;
  static constexpr const char* name = "batch_norm_backward sums";
  ChannelTensor x, dy;
  ChannelNumbers mean;
  __device__ void operator()(Sums& sums, const Channels& space, const Part& part) const {
    const C center = get<C>(mean, part.channel);
    part.for_each(space, [&](std::uint32_t n, std::uint32_t s) {
      const C d = number<C>(at<const T>(dy, n, part.channel, s));
      sums.dy += d;
      sums.dy_distance += d * (number<C>(at<const T>(x, n, part.channel, s)) - center);
    });
  }
};

/// sums[chunk][channel]
template <class F>
__global__ void __launch_bounds__(kThreads) sum_kernel(F f, Channels space, typename F::Sums* sums) {
  using Sums = typename F::Sums;
  HALFGRAD_SHARED(Sums, of_threads, kThreads);
  for (std::uint32_t piece = blockIdx.x; piece < pieces_of(space); piece += gridDim.x) {
    const Part part(space, piece);
    Sums mine{};
    if (part.exists) f(mine, space, part);
    of_threads[threadIdx.x] = mine;
    __syncthreads();
    for (std::uint32_t rows = part.step / 2; rows > 0; rows /= 2) {
      if (part.row < rows) of_threads[threadIdx.x].merge(of_threads[threadIdx.x + rows * space.width]);
      __syncthreads();
    }
    if (part.row == 0 && part.exists) sums[part.chunk * space.channels + part.channel] = of_threads[threadIdx.x];
    __syncthreads();  // before the next piece is written there
  }
}

template <class F>
void run_sums(const F& f, const Channels& space, void* memory, const Queue& queue) {
  if (space.chunks == 0) return;
  launch(F::name, sum_kernel<F>, grid_for(std::uint64_t{pieces_of(space)} * kThreads, queue), kThreads, queue.stream, f,
         space, static_cast<typename F::Sums*>(memory));
}

/// What the chunks of a channel make together; Wide is Sums with doubles.
template <class Wide, class Sums>
__device__ Wide total(const Sums* sums, const Channels& space, std::uint32_t c) {
  Wide all{};
  for (std::uint32_t chunk = 0; chunk < space.chunks; ++chunk) all.merge(sums[chunk * space.channels + c]);
  return all;
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    finish_moments(Channels space, const Moments<C>* sums, ChannelNumbers mean, ChannelNumbers rstd, double eps) {
  for (std::uint64_t i = first_item(); i < space.channels; i += item_step()) {
    const auto c = static_cast<std::uint32_t>(i);
    const auto all = total<Moments<double>>(sums, space, c);
    set(mean, c, all.mean);
    set(rstd, c, 1 / sqrt(all.squares / all.count + eps));
  }
}

/// dx = scale * dy + slope * (x - mean) + shift, for a channel.
template <class C>
struct Coefficients {
  C scale, slope, shift;
};

// With z = (x - mean) * rstd and a = weight * rstd: dbias = sum(dy), dweight = sum(dy z), and
// dx = a (dy - mean(dy) - z mean(dy z)) in training, a dy otherwise.
template <class C>
__global__ void __launch_bounds__(kThreads) finish_gradient(Channels space, const GradientSums<C>* sums,
                                                            BatchNormBackward work, Coefficients<C>* coefficients) {
  for (std::uint64_t i = first_item(); i < space.channels; i += item_step()) {
    const auto c = static_cast<std::uint32_t>(i);
    const auto all = total<GradientSums<double>>(sums, space, c);
    const double rstd = get<double>(work.rstd, c), scale = rstd * get<double>(work.weight, c);
    set(work.dbias, c, all.dy);
    set(work.dweight, c, space.positions == 0 ? 0 : all.dy_distance * rstd);
    const double n = work.training ? 1 / static_cast<double>(space.positions) : 0;
    coefficients[c] = {static_cast<C>(scale), static_cast<C>(-scale * rstd * rstd * all.dy_distance * n),
                       static_cast<C>(-scale * all.dy * n)};
  }
}

// --- for every element -----------------------------------------------------------------------------------------------

/// (x - mean) * rstd * weight + bias of one channel.
template <class C>
struct Normalizer {
  C center, scale, shift;
  __device__ Normalizer(const ChannelNumbers& mean, const ChannelNumbers& rstd, const ChannelNumbers& weight,
                        const ChannelNumbers& bias, std::uint32_t channel)
      : center(get<C>(mean, channel)),
        scale(static_cast<C>(get<double>(rstd, channel) * get<double>(weight, channel))),
        shift(get<C>(bias, channel)) {}
  __device__ C operator()(C x) const { return (x - center) * scale + shift; }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(Channels space, ChannelTensor y, ChannelTensor x, ChannelNumbers mean, ChannelNumbers rstd,
                     ChannelNumbers weight, ChannelNumbers bias, float lowest) {
  using C = Compute<T>;
  for (std::uint32_t piece = blockIdx.x; piece < pieces_of(space); piece += gridDim.x) {
    const Part part(space, piece);
    if (!part.exists) continue;
    const Normalizer<C> normalize(mean, rstd, weight, bias, part.channel);
    part.for_each(space, [&](std::uint32_t n, std::uint32_t s) {
      const C result = normalize(number<C>(at<const T>(x, n, part.channel, s)));
      at<T>(y, n, part.channel, s) = converted<T>(result < C(lowest) ? C(lowest) : result);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    relu_gradient_kernel(Channels space, ChannelTensor dz, ChannelTensor dy, ChannelTensor x, ChannelNumbers mean,
                         ChannelNumbers rstd, ChannelNumbers weight, ChannelNumbers bias) {
  using C = Compute<T>;
  for (std::uint32_t piece = blockIdx.x; piece < pieces_of(space); piece += gridDim.x) {
    const Part part(space, piece);
    if (!part.exists) continue;
    const Normalizer<C> normalize(mean, rstd, weight, bias, part.channel);
    part.for_each(space, [&](std::uint32_t n, std::uint32_t s) {
      const T result = converted<T>(normalize(number<C>(at<const T>(x, n, part.channel, s))));
      at<T>(dz, n, part.channel, s) =
          number<C>(result) > C(0) ? at<const T>(dy, n, part.channel, s) : converted<T>(C(0));
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(Channels space, BatchNormBackward work, const Coefficients<Compute<T>>* coefficients) {
  using C = Compute<T>;
  for (std::uint32_t piece = blockIdx.x; piece < pieces_of(space); piece += gridDim.x) {
    const Part part(space, piece);
    if (!part.exists) continue;
    const Coefficients<C> its = coefficients[part.channel];
    const C center = get<C>(work.mean, part.channel);
    part.for_each(space, [&](std::uint32_t n, std::uint32_t s) {
      const C dy = number<C>(at<const T>(work.dy, n, part.channel, s));
      const C distance = number<C>(at<const T>(work.x, n, part.channel, s)) - center;
      at<T>(work.dx, n, part.channel, s) = converted<T>(dy * its.scale + distance * its.slope + its.shift);
    });
  }
}

dim3 grid_of_pieces(const Channels& space, const Queue& queue) {
  return grid_for(std::uint64_t{pieces_of(space)} * kThreads, queue);
}

/// f(T()) with the type of the elements.
template <class F>
void with_type(DType dtype, F&& f) {
  if (dtype == f16)
    f(half());
  else if (dtype == f32)
    f(float());
  else
    f(double());
}

}  // namespace

// The sums of all chunks, and behind them the coefficients of all channels.
std::size_t bytes_for_sums(const Channels& space) {
  return (std::size_t{space.chunks} * sizeof(Moments<double>) + sizeof(Coefficients<double>)) * space.channels;
}

void channel_moments(const Channels& space, DType dtype, const ChannelTensor& x, const ChannelNumbers& mean,
                     const ChannelNumbers& rstd, double eps, void* memory, const Queue& queue) {
  with_type(dtype, [&]<class T>(T) {
    run_sums(MomentsOf<T>{x}, space, memory, queue);
    launch("batch_norm statistics", finish_moments<Compute<T>>, grid_for(space.channels, queue), kThreads, queue.stream,
           space, static_cast<const Moments<Compute<T>>*>(memory), mean, rstd, eps);
  });
}

void normalize_channels(const Channels& space, DType dtype, const ChannelTensor& y, const ChannelTensor& x,
                        const ChannelNumbers& mean, const ChannelNumbers& rstd, const ChannelNumbers& weight,
                        const ChannelNumbers& bias, float lowest, const Queue& queue) {
  if (space.chunks == 0) return;
  with_type(dtype, [&]<class T>(T) {
    launch("batch_norm", normalize_kernel<T>, grid_of_pieces(space, queue), kThreads, queue.stream, space, y, x, mean,
           rstd, weight, bias, lowest);
  });
}

void relu_gradient(const Channels& space, DType dtype, const ChannelTensor& dz, const ChannelTensor& dy,
                   const ChannelTensor& x, const ChannelNumbers& mean, const ChannelNumbers& rstd,
                   const ChannelNumbers& weight, const ChannelNumbers& bias, const Queue& queue) {
  if (space.chunks == 0) return;
  with_type(dtype, [&]<class T>(T) {
    launch("batch_norm_backward", relu_gradient_kernel<T>, grid_of_pieces(space, queue), kThreads, queue.stream, space,
           dz, dy, x, mean, rstd, weight, bias);
  });
}

void batch_norm_backward(const Channels& space, DType dtype, const BatchNormBackward& work, void* memory,
                         const Queue& queue) {
  with_type(dtype, [&]<class T>(T) {
    using C = Compute<T>;
    run_sums(GradientSumsOf<T>{work.x, work.dy, work.mean}, space, memory, queue);
    auto* const sums = static_cast<GradientSums<C>*>(memory);
    auto* const coefficients = reinterpret_cast<Coefficients<C>*>(sums + std::size_t{space.chunks} * space.channels);
    launch("batch_norm_backward", finish_gradient<C>, grid_for(space.channels, queue), kThreads, queue.stream, space,
           static_cast<const GradientSums<C>*>(sums), work, coefficients);
    if (space.chunks == 0 || !work.dx.data) return;
    launch("batch_norm_backward", gradient_kernel<T>, grid_of_pieces(space, queue), kThreads, queue.stream, space, work,
           static_cast<const Coefficients<C>*>(coefficients));
  });
}

}  // namespace halfgrad::cuda
