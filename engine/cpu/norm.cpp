// Batch and layer normalisation on the CPU.
//
// Batch normalisation reads x once for the statistics, tile by tile: each tile is reduced to (count, mean,
// sum of squared distances from that mean) while it is in the cache, and two such triples are merged without
// ever subtracting large sums from each other. So a mean of 1000 and a deviation of 1 cost no digits.

#include <cmath>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/reduction.h"

namespace halfgrad {
namespace {

using cpu::Reduction;
using cpu::Scratch;
using cpu::TileStrides;
using Tile = Reduction::Tile;

constexpr std::uint64_t kAllButChannels = 0b101;  // reduced dimensions of [N, C, S]
const Strides kChannel = {0, 1, 0};               // the output of a tile is a channel

TileStrides strides_of(const Tile& t, int operand) { return {t.width_stride[operand], t.length_stride[operand]}; }

double get(const View& x, std::int64_t i) {
  return visit_dtype(x.dtype, [&]<class T>(T) { return static_cast<double>(x.as<T>()[i * x.strides[0]]); });
}
void set(const View& y, std::int64_t i, double value) {
  visit_dtype(y.dtype, [&]<class T>(T) { y.as<T>()[i * y.strides[0]] = static_cast<T>(value); });
}

// An array of n numbers of the type in which x is computed: number(i) for each.
class Numbers {
 public:
  template <class F>
  Numbers(DType x, std::int64_t n, F number)
      : memory_(static_cast<std::size_t>(n) * (x == f64 ? 8 : 4)), wide_(x == f64) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (wide_) {
        memory_.as<double>()[i] = number(i);
      } else {
        memory_.as<float>()[i] = static_cast<float>(number(i));
      }
    }
  }
  const void* from(std::int64_t i) const {
    return wide_ ? static_cast<const void*>(memory_.as<double>() + i) : memory_.as<float>() + i;
  }

 private:
  Scratch memory_;
  bool wide_;
};

std::int64_t rows_at_a_time(std::int64_t row) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(row, 1));
}

// a += b (Chan, Golub and LeVeque, 1979), for `width` channels: count; means; sums of squared distances.
void merge_moments(double* a, const double* b, std::int64_t width) {
  const double n = a[0] + b[0], part = b[0] / n, weight = a[0] * part;
  a[0] = n;
  for (std::int64_t w = width; w < 2 * width; ++w) {
    const double distance = b[w] - a[w];
    a[w] += distance * part;
    a[width + w] += b[width + w] + distance * distance * weight;
  }
}

}  // namespace

void CpuBackend::batch_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                            const View& bias, double eps, Activation activation) {
  const auto kernel = cpu::kernels().norm.moments[static_cast<int>(x.dtype)];
  const Reduction plan(x.shape, kAllButChannels, {&x.strides}, kChannel);
  plan.run<double>(
      3, [&](double* out, const Tile& t) { kernel(out, x.at(t.offset[0]), t.width, t.length, strides_of(t, 0)); },
      merge_moments,
      [&](const double* result, const Tile& t) {
        for (std::int64_t w = 0; w < t.width; ++w) {
          set(mean, t.out_offset + w, result[t.width + w]);
          set(rstd, t.out_offset + w, 1 / std::sqrt(result[2 * t.width + w] / result[0] + eps));
        }
      });
  normalize_channels(y, x, mean, rstd, weight, bias, activation);
}

void CpuBackend::normalize_channels(const View& y, const View& x, const View& mean, const View& rstd,
                                    const View& weight, const View& bias, Activation activation) {
  const std::int64_t channels = x.shape[1];
  const Numbers means(x.dtype, channels, [&](std::int64_t c) { return get(mean, c); });
  const Numbers scale(x.dtype, channels, [&](std::int64_t c) { return get(rstd, c) * (weight ? get(weight, c) : 1); });
  const Numbers shift(x.dtype, channels, [&](std::int64_t c) { return bias ? get(bias, c) : 0; });
  const auto kernel = cpu::kernels().norm.normalize[static_cast<int>(x.dtype)];
  Reduction(x.shape, kAllButChannels, {&x.strides, &y.strides}, kChannel).for_each_tile([&](const Tile& t) {
    const std::int64_t c = t.out_offset;
    kernel(y.at(t.offset[1]), x.at(t.offset[0]), t.width, t.length, strides_of(t, 1), strides_of(t, 0), means.from(c),
           scale.from(c), shift.from(c), lowest_of(activation));
  });
}

// With z = (x - mean) * rstd and a = weight * rstd: dbias = sum(dy), dweight = sum(dy z), and
// dx = a (dy - mean(dy) - z mean(dy z)) in training, a dy otherwise.
void CpuBackend::batch_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                     const View& x, const View& mean, const View& rstd, const View& weight,
                                     const View& bias, bool training, Activation activation) {
  const std::int64_t channels = x.shape[1];
  const auto& kernels = cpu::kernels().norm;
  const std::size_t dtype = static_cast<std::size_t>(x.dtype), relu = activation == Activation::relu;
  const auto scale_of = [&](std::int64_t c) { return get(rstd, c) * (weight ? get(weight, c) : 1); };
  const Numbers means(x.dtype, channels, [&](std::int64_t c) { return get(mean, c); });
  const Numbers scale(x.dtype, channels, scale_of);
  const Numbers biases(x.dtype, channels, [&](std::int64_t c) { return bias ? get(bias, c) : 0; });
  const Scratch sums(static_cast<std::size_t>(2 * channels) * sizeof(double));
  double *sum_dy = sums.as<double>(), *sum_dy_distance = sum_dy + channels;  // distance = x - mean

  const Reduction plan(x.shape, kAllButChannels, {&x.strides, &dy.strides}, kChannel);
  if (training || dweight || dbias) {
    plan.run<double>(
        2,
        [&](double* out, const Tile& t) {
          const std::int64_t c = t.out_offset;
          kernels.gradient_sums[relu][dtype](out, dy.at(t.offset[1]), x.at(t.offset[0]), t.width, t.length,
                                             strides_of(t, 1), strides_of(t, 0), means.from(c), scale.from(c),
                                             biases.from(c));
        },
        [](double* a, const double* b, std::int64_t width) {
          for (std::int64_t i = 0; i < 2 * width; ++i) a[i] += b[i];
        },
        [&](const double* result, const Tile& t) {
          std::copy_n(result, t.width, sum_dy + t.out_offset);
          std::copy_n(result + t.width, t.width, sum_dy_distance + t.out_offset);
        });
    for (std::int64_t c = 0; c < channels; ++c) {
      if (dbias) set(dbias, c, sum_dy[c]);
      if (dweight) set(dweight, c, plan.count() == 0 ? 0 : sum_dy_distance[c] * get(rstd, c));
    }
  }
  if (!dx) return;

  const double n = training ? 1 / static_cast<double>(plan.count()) : 0;
  const Numbers slope(x.dtype, channels, [&](std::int64_t c) {
    return training ? -scale_of(c) * get(rstd, c) * get(rstd, c) * sum_dy_distance[c] * n : 0;
  });
  const Numbers shift(x.dtype, channels, [&](std::int64_t c) { return training ? -scale_of(c) * sum_dy[c] * n : 0; });
  Reduction(x.shape, kAllButChannels, {&x.strides, &dy.strides, &dx.strides}, kChannel)
      .for_each_tile([&](const Tile& t) {
        const std::int64_t c = t.out_offset;
        kernels.gradient[relu][dtype](dx.at(t.offset[2]), dy.at(t.offset[1]), x.at(t.offset[0]), t.width, t.length,
                                      strides_of(t, 2), strides_of(t, 1), strides_of(t, 0), means.from(c),
                                      scale.from(c), biases.from(c), slope.from(c), shift.from(c));
      });
}

void CpuBackend::layer_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                            const View& bias, double eps) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  const auto kernel = cpu::kernels().norm.layer_norm[static_cast<int>(x.dtype)];
  const Numbers scale(x.dtype, n, [&](std::int64_t i) { return weight ? get(weight, i) : 1; });
  const Numbers shift(x.dtype, n, [&](std::int64_t i) { return bias ? get(bias, i) : 0; });
  cpu::parallel_for(rows, rows_at_a_time(n), [&](std::int64_t begin, std::int64_t end) {
    const Scratch buffer(static_cast<std::size_t>(n) * size_of(mean.dtype));
    for (std::int64_t r = begin; r < end; ++r)
      kernel(y.at(r * y.strides[0]), mean.at(r * mean.strides[0]), rstd.at(r * rstd.strides[0]), x.at(r * x.strides[0]),
             n, y.strides[1], x.strides[1], scale.from(0), shift.from(0), eps, buffer.as<void>());
  });
}

void CpuBackend::layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                     const View& x, const View& mean, const View& rstd, const View& weight) {
  const auto run = [&]<class Number>(Number) {
    const std::int64_t rows = x.shape[0], n = x.shape[1];
    const auto kernel = cpu::kernels().norm.layer_norm_backward[static_cast<int>(x.dtype)];
    const Numbers scale(x.dtype, n, [&](std::int64_t i) { return weight ? get(weight, i) : 1; });

    // dweight and dbias are sums over rows: in Numbers over 32 rows, in double beyond. Each task has its own.
    constexpr std::int64_t kLeaf = 32, kMaxTasks = 64;
    const std::int64_t grain = std::max({rows_at_a_time(n), kLeaf, (rows + kMaxTasks - 1) / kMaxTasks});
    const std::int64_t tasks = (rows + grain - 1) / grain, size = 2 * n;
    const Scratch totals_memory(static_cast<std::size_t>(tasks * size) * sizeof(double));
    auto* totals = totals_memory.as<double>();
    cpu::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      const Scratch memory(static_cast<std::size_t>(2 * size) * sizeof(Number));
      auto* leaf = memory.as<Number>();
      double* total = totals + begin / grain * size;
      std::fill_n(total, size, 0.0);
      for (std::int64_t first = begin; first < end; first += kLeaf) {
        std::fill_n(leaf, size, Number(0));
        for (std::int64_t r = first; r < std::min(first + kLeaf, end); ++r)
          kernel(dx ? dx.at(r * dx.strides[0]) : nullptr, leaf, leaf + n, dy.at(r * dy.strides[0]),
                 x.at(r * x.strides[0]), n, dx ? dx.strides[1] : 0, dy.strides[1], x.strides[1], get(mean, r),
                 get(rstd, r), scale.from(0), leaf + size);
        for (std::int64_t i = 0; i < size; ++i) total[i] += static_cast<double>(leaf[i]);
      }
    });
    for (std::int64_t task = 1; task < tasks; ++task)
      for (std::int64_t i = 0; i < size; ++i) totals[i] += totals[task * size + i];
    for (std::int64_t i = 0; i < n; ++i) {
      if (dweight) set(dweight, i, tasks == 0 ? 0 : totals[i]);
      if (dbias) set(dbias, i, tasks == 0 ? 0 : totals[n + i]);
    }
  };
  x.dtype == f64 ? run(double()) : run(float());
}

}  // namespace halfgrad
