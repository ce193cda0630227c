#include "engine/cpu/kernels/pool.h"

#include "engine/cpu/simd.h"

// The inner loop always runs over channels: in channels-last memory they are contiguous, and every channel
// has the same windows, so that all lanes do the same. The compiler vectorises these loops.

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

constexpr std::int64_t kBlock = 64;  // channels at a time; their sums stay in the L1 cache

template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeType<T>::type;

template <class T>
HALFGRAD_INLINE void load_line(const T* from, std::int64_t stride, T* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}
HALFGRAD_INLINE void load_line(const half_bits* from, std::int64_t stride, float* to, std::int64_t n) {
  if (stride == 1) return half_to_float(from, to, n);
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(from[i * stride]);
}
template <class T>
HALFGRAD_INLINE void store_line(const T* from, T* to, std::int64_t stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
}
HALFGRAD_INLINE void store_line(const float* from, half_bits* to, std::int64_t stride, std::int64_t n) {
  if (stride == 1) return float_to_half(from, to, n);
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = float_to_half(from[i]);
}

template <class T>
HALFGRAD_INLINE T* pixel(const PoolImage& image, std::int64_t channel, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(image.data) + channel * image.channel + row * image.row + column * image.column;
}

// f(first channel, number of channels, row, column) for every pixel of y, in blocks of channels.
template <class F>
HALFGRAD_INLINE void for_each_pixel(const PoolJob& job, F&& f) {
  for (std::int64_t row = 0; row < job.out_height; ++row)
    for (std::int64_t column = 0; column < job.out_width; ++column)
      for (std::int64_t c = 0; c < job.channels; c += kBlock)
        f(c, job.channels - c < kBlock ? job.channels - c : kBlock, row, column);
}

// f(row, column) for every position of x in a window.
template <class F>
HALFGRAD_INLINE void for_each_position(const PoolSpan& rows, const PoolSpan& columns, F&& f) {
  for (std::int64_t h = rows.begin; h < rows.end; h += rows.step)
    for (std::int64_t w = columns.begin; w < columns.end; w += columns.step) f(h, w);
}

template <class T>
void max_pool(const PoolJob& job) {
  for_each_pixel(job, [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
    Compute<T> best[kBlock], value[kBlock];
    std::int32_t position[kBlock];
    const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
    const auto first = static_cast<std::int32_t>(rows.begin * job.width + columns.begin);
    load_line(pixel<const T>(job.x, c, rows.begin, columns.begin), job.x.channel, best, n);
    for (std::int64_t i = 0; i < n; ++i) position[i] = first;
    for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
      load_line(pixel<const T>(job.x, c, h, w), job.x.channel, value, n);
      const auto here = static_cast<std::int32_t>(h * job.width + w);
      for (std::int64_t i = 0; i < n; ++i) {
        const bool better = !(value[i] <= best[i]) & (best[i] == best[i]);  // larger, or the first NaN
        best[i] = better ? value[i] : best[i];
        position[i] = better ? here : position[i];
      }
    });
    store_line(best, pixel<T>(job.y, c, row, column), job.y.channel, n);
    if (job.index.data) {
      auto* index = pixel<std::int64_t>(job.index, c, row, column);
      for (std::int64_t i = 0; i < n; ++i) index[i * job.index.channel] = position[i];
    }
  });
}

template <class T>
void average_pool(const PoolJob& job) {
  for_each_pixel(job, [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
    Compute<T> sum[kBlock], value[kBlock];
    const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
    for (std::int64_t i = 0; i < n; ++i) sum[i] = 0;
    for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
      load_line(pixel<const T>(job.x, c, h, w), job.x.channel, value, n);
      for (std::int64_t i = 0; i < n; ++i) sum[i] += value[i];
    });
    const auto size = static_cast<Compute<T>>(rows.size * columns.size);
    for (std::int64_t i = 0; i < n; ++i) sum[i] /= size;
    store_line(sum, pixel<T>(job.y, c, row, column), job.y.channel, n);
  });
}

// The backwards sum in `sums`, [height, width, channels], because windows may overlap; then round once.
template <class T>
void clear_sums(const PoolJob& job) {
  const std::int64_t n = job.channels * job.height * job.width;
  std::memset(job.sums, 0, static_cast<std::size_t>(n) * sizeof(Compute<T>));
}
template <class T>
void store_sums(const PoolJob& job) {
  const auto* sums = static_cast<const Compute<T>*>(job.sums);
  for (std::int64_t h = 0; h < job.height; ++h)
    for (std::int64_t w = 0; w < job.width; ++w, sums += job.channels)
      store_line(sums, pixel<T>(job.x, 0, h, w), job.x.channel, job.channels);
}

template <class T>
void max_pool_backward(const PoolJob& job) {
  clear_sums<T>(job);
  for_each_pixel(job, [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
    Compute<T> value[kBlock];
    load_line(pixel<const T>(job.y, c, row, column), job.y.channel, value, n);
    const auto* index = pixel<const std::int64_t>(job.index, c, row, column);
    auto* sums = static_cast<Compute<T>*>(job.sums) + c;
    for (std::int64_t i = 0; i < n; ++i) sums[index[i * job.index.channel] * job.channels + i] += value[i];
  });
  store_sums<T>(job);
}

template <class T>
void average_pool_backward(const PoolJob& job) {
  clear_sums<T>(job);
  for_each_pixel(job, [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
    Compute<T> value[kBlock];
    const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
    load_line(pixel<const T>(job.y, c, row, column), job.y.channel, value, n);
    const auto size = static_cast<Compute<T>>(rows.size * columns.size);
    for (std::int64_t i = 0; i < n; ++i) value[i] /= size;
    for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
      Compute<T>* sums = static_cast<Compute<T>*>(job.sums) + (h * job.width + w) * job.channels + c;
      for (std::int64_t i = 0; i < n; ++i) sums[i] += value[i];
    });
  });
  store_sums<T>(job);
}

template <class T>
PoolFunctions functions() {
  return {max_pool<T>, max_pool_backward<T>, average_pool<T>, average_pool_backward<T>};
}

}  // namespace

PoolKernels pool_kernels() { return {functions<half_bits>(), functions<float>(), functions<double>()}; }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
