#include "engine/cpu/kernels/pool.h"

#include "engine/cpu/kernels/lanes.h"

// The inner loop always runs over channels: in channels-last memory they are contiguous, and every channel
// has the same windows, so that all lanes do the same.

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

constexpr std::int64_t kBlock = 64;  // channels at a time; their sums stay in the L1 cache

template <class T>
HALFGRAD_INLINE T* pixel(const PoolImage& image, std::int64_t channel, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(image.data) + channel * image.channel + row * image.row + column * image.column;
}

// f(first channel, number of channels, row, column) for every pixel of y, in blocks of so many channels.
template <class F>
HALFGRAD_INLINE void for_each_pixel(const PoolJob& job, std::int64_t block, F&& f) {
  for (std::int64_t row = 0; row < job.out_height; ++row)
    for (std::int64_t column = 0; column < job.out_width; ++column)
      for (std::int64_t c = 0; c < job.channels; c += block)
        f(c, job.channels - c < block ? job.channels - c : block, row, column);
}

// f(row, column) for every position of x in a window.
template <class F>
HALFGRAD_INLINE void for_each_position(const PoolSpan& rows, const PoolSpan& columns, F&& f) {
  for (std::int64_t h = rows.begin; h < rows.end; h += rows.step)
    for (std::int64_t w = columns.begin; w < columns.end; w += columns.step) f(h, w);
}

// The pixels' values of k channels, and back.
template <class T>
HALFGRAD_INLINE Vector<T> load_channels(const T* p, std::int64_t stride, std::int64_t k) {
  if (stride == 1) return k == lanes_of<T> ? load(p) : load_n(p, k);
  T lanes[lanes_of<T>] = {};
  for (std::int64_t i = 0; i < k; ++i) lanes[i] = p[i * stride];
  return load(lanes);
}
template <class T>
HALFGRAD_INLINE void store_channels(T* p, std::int64_t stride, Vector<T> v, std::int64_t k) {
  if (stride == 1) return k == lanes_of<T> ? store(p, v) : store_n(p, v, k);
  T lanes[lanes_of<T>];
  store(lanes, v);
  for (std::int64_t i = 0; i < k; ++i) p[i * stride] = lanes[i];
}

template <class T>
void max_pool(const PoolJob& job) {
  using V = Vector<T>;
  using Positions = std::conditional_t<(lanes_of<T> > 1), vint, std::int32_t>;
  for_each_pixel(job, lanes_of<T>,
                 [&](std::int64_t c, std::int64_t k, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
                   const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
                   const auto value_at = [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
                     return load_channels(pixel<const T>(job.x, c, h, w), job.x.channel, k);
                   };
                   V best = value_at(rows.begin, columns.begin);
                   Positions position = Positions{} + static_cast<std::int32_t>(rows.begin * job.width + columns.begin);
                   for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
                     const V value = value_at(h, w);
                     const auto better = ((value <= best) == 0) & (best == best);  // larger, or the first NaN
                     best = better ? value : best;
                     position = better ? Positions{} + static_cast<std::int32_t>(h * job.width + w) : position;
                   });
                   store_channels(pixel<T>(job.y, c, row, column), job.y.channel, best, k);
                   if (job.index.data) {
                     std::int32_t lanes[sizeof(Positions) / sizeof(std::int32_t)];
                     store_bits(lanes, position);
                     auto* index = pixel<std::int32_t>(job.index, c, row, column);
                     if (job.index.channel == 1)
                       for (std::int64_t i = 0; i < k; ++i) index[i] = lanes[i];
                     else
                       for (std::int64_t i = 0; i < k; ++i) index[i * job.index.channel] = lanes[i];
                   }
                 });
}

template <class T>
void average_pool(const PoolJob& job) {
  for_each_pixel(job, kBlock,
                 [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
                   Number<T> sum[kBlock], value[kBlock];
                   const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
                   for (std::int64_t i = 0; i < n; ++i) sum[i] = 0;
                   for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
                     load_line(value, pixel<const T>(job.x, c, h, w), n, job.x.channel);
                     for (std::int64_t i = 0; i < n; ++i) sum[i] += value[i];
                   });
                   const auto size = static_cast<Number<T>>(rows.size * columns.size);
                   for (std::int64_t i = 0; i < n; ++i) sum[i] /= size;
                   store_line(pixel<T>(job.y, c, row, column), sum, n, job.y.channel);
                 });
}

// The backwards add up in memory of the type that is computed in, because windows may overlap: in dx itself, where its
// pixels allow that, else in `sums`, [height, width, channels], which is rounded once at the end.
template <class T>
class Sums {
 public:
  explicit Sums(const PoolJob& job) : job_(job), at_(static_cast<Number<T>*>(job.sums)), step_(job.channels) {
    if constexpr (std::is_same_v<T, Number<T>>) {
      in_place_ = job.x.channel == 1 && job.x.row == job.width * job.x.column;
      if (in_place_) at_ = static_cast<T*>(job.x.data), step_ = job.x.column;
    }
    const auto size = static_cast<std::size_t>(job.channels) * sizeof(Number<T>);
    const std::int64_t pixels = job.height * job.width;
    if (step_ == job.channels)
      std::memset(at_, 0, static_cast<std::size_t>(pixels) * size);
    else
      for (std::int64_t p = 0; p < pixels; ++p) std::memset(at_ + p * step_, 0, size);
  }
  ~Sums() {
    if (in_place_) return;
    for (std::int64_t h = 0; h < job_.height; ++h)
      for (std::int64_t w = 0; w < job_.width; ++w)
        store_line(pixel<T>(job_.x, 0, h, w), at_ + (h * job_.width + w) * step_, job_.channels, job_.x.channel);
  }
  /// Of the channels from c on, at position row * width + column.
  HALFGRAD_INLINE Number<T>* of(std::int64_t position, std::int64_t c) const { return at_ + position * step_ + c; }

 private:
  const PoolJob& job_;
  Number<T>* at_;
  std::int64_t step_;
  bool in_place_ = false;
};

template <class T>
void max_pool_backward(const PoolJob& job) {
  const Sums<T> sums(job);
  for_each_pixel(job, kBlock,
                 [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
                   Number<T> value[kBlock];
                   load_line(value, pixel<const T>(job.y, c, row, column), n, job.y.channel);
                   const auto* index = pixel<const std::int32_t>(job.index, c, row, column);
                   for (std::int64_t i = 0; i < n; ++i) *sums.of(index[i * job.index.channel], c + i) += value[i];
                 });
}

template <class T>
void average_pool_backward(const PoolJob& job) {
  const Sums<T> sums(job);
  for_each_pixel(job, kBlock,
                 [&](std::int64_t c, std::int64_t n, std::int64_t row, std::int64_t column) HALFGRAD_LAMBDA {
                   Number<T> value[kBlock];
                   const PoolSpan &rows = job.rows[row], &columns = job.columns[column];
                   load_line(value, pixel<const T>(job.y, c, row, column), n, job.y.channel);
                   const auto size = static_cast<Number<T>>(rows.size * columns.size);
                   for (std::int64_t i = 0; i < n; ++i) value[i] /= size;
                   for_each_position(rows, columns, [&](std::int64_t h, std::int64_t w) HALFGRAD_LAMBDA {
                     Number<T>* sum = sums.of(h * job.width + w, c);
                     for (std::int64_t i = 0; i < n; ++i) sum[i] += value[i];
                   });
                 });
}

template <class T>
PoolFunctions functions() {
  return {max_pool<T>, max_pool_backward<T>, average_pool<T>, average_pool_backward<T>};
}

}  // namespace

PoolKernels pool_kernels() { return {functions<half_bits>(), functions<float>(), functions<double>()}; }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
