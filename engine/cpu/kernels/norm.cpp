#include "engine/cpu/kernels/norm.h"

#include "engine/cpu/kernels/lanes.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

// --- walking over a tile
// -------------------------------------------------------------------------------------------------- A tile
// lies in memory with its channels side by side (channels-last), or with the positions of a channel side by
// side (NCHW), or else anyhow. The first two are walked in vectors.

bool channels_dense(TileStrides s) { return s.width == 1; }
bool positions_dense(TileStrides s) { return s.length == 1; }

// body.columns<v>(w, k): v vectors of channels from w on, of which the last has k. body.row(w): channel w,
// along dense positions. body.scalar(w): channel w, anyhow.
template <class T, class Body>
HALFGRAD_INLINE void walk(std::int64_t width, bool columns, bool rows, Body body) {
  constexpr std::int64_t kOne = lanes_of<T>;
  if (columns) {
    std::int64_t w = 0;
    for (; w + 2 * kOne <= width; w += 2 * kOne) body.template columns<2>(w, kOne);
    for (; w + kOne <= width; w += kOne) body.template columns<1>(w, kOne);
    if (w < width) body.template columns<1>(w, width - w);
  } else if (rows) {
    for (std::int64_t w = 0; w < width; ++w) body.row(w);
  } else {
    for (std::int64_t w = 0; w < width; ++w) body.scalar(w);
  }
}

// v vectors, of which the last has k lanes: f(v, offset, lanes) for each.
template <class T, int kVectors, class F>
HALFGRAD_INLINE void for_vectors(std::int64_t k, F f) {
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA {
    f(v, std::int64_t{v * lanes_of<T>}, decltype(v)::value == kVectors - 1 ? k : std::int64_t{lanes_of<T>});
  });
}

template <class N, class V>
HALFGRAD_INLINE void store_doubles(double* out, V v, std::int64_t n) {
  N lanes[sizeof(V) / sizeof(N)];
  store(lanes, v);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(lanes[i]);
}

// --- statistics of a batch -------------------------------------------------------------------------------------------

// The mean of a tile, then the distances from it while the tile is in the cache. The sum of distances, which
// would be 0 without rounding, corrects both (Chan, Golub and LeVeque, 1983).
struct Spread {
  double mean, squares;
  Spread(double rough_mean, double distances, double squared, double one_over_n)
      : mean(rough_mean + distances * one_over_n), squares(squared - distances * distances * one_over_n) {}
};

template <class T>
struct Moments {
  using N = Number<T>;
  using V = Vector<T>;
  double* out;
  const T* x;
  std::int64_t width, length;
  TileStrides s;
  double one_over_n = 1 / static_cast<double>(length);

  HALFGRAD_INLINE void write(std::int64_t w, Spread m) const {
    out[width + w] = m.mean;
    out[2 * width + w] = m.squares;
  }

  template <int kVectors>
  HALFGRAD_INLINE void columns(std::int64_t w, std::int64_t k) const {
    V means[kVectors] = {}, distances[kVectors] = {}, squares[kVectors] = {};
    for (std::int64_t i = 0; i < length; ++i)
      for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n)
                                      HALFGRAD_LAMBDA { means[v] = means[v] + load_n(x + w + at + i * s.length, n); });
    const V scale = spread<T>(static_cast<N>(one_over_n));
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { means[v] = means[v] * scale; });
    for (std::int64_t i = 0; i < length; ++i)
      for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
        const V d = load_n(x + w + at + i * s.length, n) - means[v];
        distances[v] = distances[v] + d;
        squares[v] = fma(d, d, squares[v]);
      });
    N lanes[3][lanes_of<T>];
    for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
      store(lanes[0], means[v]);
      store(lanes[1], distances[v]);
      store(lanes[2], squares[v]);
      for (std::int64_t i = 0; i < n; ++i) write(w + at + i, Spread(lanes[0][i], lanes[1][i], lanes[2][i], one_over_n));
    });
  }

  void row(std::int64_t w) const {
    const T* line = x + w * s.width;
    const N mean =
        static_cast<N>(one_over_n) *
        pairwise_sum<T>(0, length, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(line + i, k); });
    const V means = spread<T>(mean);
    constexpr int kVectors = 2;
    V distances[kVectors] = {}, squares[kVectors] = {};
    const auto add = [&](auto v, V d) HALFGRAD_LAMBDA {
      distances[v] = distances[v] + d;
      squares[v] = fma(d, d, squares[v]);
    };
    std::int64_t i = 0;
    for (; i + kVectors * lanes_of<T> <= length; i += kVectors * lanes_of<T>)
      unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { add(v, load(line + i + v * lanes_of<T>) - means); });
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA {
      const std::int64_t at = i + v * lanes_of<T>, rest = length - at;
      const std::int64_t n = rest < lanes_of<T> ? rest : lanes_of<T>;
      if (rest > 0) add(v, first_n(load_n(line + at, n) - means, n));
    });
    write(w, Spread(static_cast<double>(mean), static_cast<double>(sum_of_lanes(distances[0] + distances[1])),
                    static_cast<double>(sum_of_lanes(squares[0] + squares[1])), one_over_n));
  }

  void scalar(std::int64_t w) const {
    const T* line = x + w * s.width;
    double sum = 0, distances = 0, squares = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += static_cast<double>(number(line[i * s.length]));
    const double mean = sum * one_over_n;
    for (std::int64_t i = 0; i < length; ++i) {
      const double d = static_cast<double>(number(line[i * s.length])) - mean;
      distances += d;
      squares += d * d;
    }
    write(w, Spread(mean, distances, squares, one_over_n));
  }
};

template <class T>
void moments(double* out, const void* x, std::int64_t width, std::int64_t length, TileStrides s) {
  out[0] = static_cast<double>(length);
  walk<T>(width, channels_dense(s), positions_dense(s), Moments<T>{out, static_cast<const T*>(x), width, length, s});
}

// --- y = (x - mean) * scale + shift, at least `lowest` ----------------------------------------------------------------------------------

template <class T>
struct Normalize {
  using N = Number<T>;
  using V = Vector<T>;
  T* y;
  const T* x;
  std::int64_t length;
  TileStrides ys, xs;
  const N *mean, *scale, *shift;
  N lowest;

  template <int kVectors>
  HALFGRAD_INLINE void columns(std::int64_t w, std::int64_t k) const {
    V m[kVectors], a[kVectors], b[kVectors];
    for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
      m[v] = load_n(mean + w + at, n), a[v] = load_n(scale + w + at, n), b[v] = load_n(shift + w + at, n);
    });
    for (std::int64_t i = 0; i < length; ++i)
      for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
        const V z = fma(load_n(x + w + at + i * xs.length, n) - m[v], a[v], b[v]);
        store_n(y + w + at + i * ys.length, at_least(z, lowest), n);
      });
  }
  HALFGRAD_INLINE void row(std::int64_t w) const {
    const V m = spread<T>(mean[w]), a = spread<T>(scale[w]), b = spread<T>(shift[w]);
    const T* from = x + w * xs.width;
    T* to = y + w * ys.width;
    std::int64_t i = 0;
    for (; i + lanes_of<T> <= length; i += lanes_of<T>) store(to + i, at_least(fma(load(from + i) - m, a, b), lowest));
    if (i < length) store_n(to + i, at_least(fma(load_n(from + i, length - i) - m, a, b), lowest), length - i);
  }
  void scalar(std::int64_t w) const {
    for (std::int64_t i = 0; i < length; ++i)
      assign(y[w * ys.width + i * ys.length],
             at_least((number(x[w * xs.width + i * xs.length]) - mean[w]) * scale[w] + shift[w], lowest));
  }
};

template <class T>
void normalize(void* y, const void* x, std::int64_t width, std::int64_t length, TileStrides ys, TileStrides xs,
               const void* mean, const void* scale, const void* shift, float lowest) {
  using N = Number<T>;
  walk<T>(width, channels_dense(xs) && channels_dense(ys), positions_dense(xs) && positions_dense(ys),
          Normalize<T>{static_cast<T*>(y), static_cast<const T*>(x), length, ys, xs, static_cast<const N*>(mean),
                       static_cast<const N*>(scale), static_cast<const N*>(shift), lowest});
}

// --- the gradient of batch normalisation -----------------------------------------------------------------------------

// dy as it arrives in front of a ReLU, where z is what the ReLU was applied to, before it was rounded to a T. Halves up to
// 2^-25, which is half of the least positive one, are rounded to 0.
template <class T, class V>
HALFGRAD_INLINE V behind_relu(V dy, V z) {
  constexpr Number<T> kRoundedToZero = std::is_same_v<T, half_bits> ? 0x1p-25F : 0;
  return z > kRoundedToZero ? dy : V{};
}

template <class T, bool kRelu>
struct GradientSums {
  using N = Number<T>;
  using V = Vector<T>;
  double* out;
  const T *dy, *x;
  std::int64_t width, length;
  TileStrides ds, xs;
  const N *mean, *scale, *bias;

  template <int kVectors>
  HALFGRAD_INLINE void columns(std::int64_t w, std::int64_t k) const {
    V m[kVectors], a[kVectors], b[kVectors], sum[kVectors] = {}, product[kVectors] = {};
    for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
      m[v] = load_n(mean + w + at, n), a[v] = load_n(scale + w + at, n), b[v] = load_n(bias + w + at, n);
    });
    for (std::int64_t i = 0; i < length; ++i)
      for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
        const V distance = load_n(x + w + at + i * xs.length, n) - m[v];
        V d = load_n(dy + w + at + i * ds.length, n);
        if constexpr (kRelu) d = behind_relu<T>(d, fma(distance, a[v], b[v]));
        sum[v] = sum[v] + d;
        product[v] = fma(d, distance, product[v]);
      });
    for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
      store_doubles<N>(out + w + at, sum[v], n);
      store_doubles<N>(out + width + w + at, product[v], n);
    });
  }
  void row(std::int64_t w) const {
    const V m = spread<T>(mean[w]), a = spread<T>(scale[w]), b = spread<T>(bias[w]);
    const T *gradient = dy + w * ds.width, *line = x + w * xs.width;
    const auto distance = [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(line + i, k) - m; };
    // Lanes beyond the end hold 0, and 0 * (0 - mean), unless the mean is not finite, in which case the rest is not either.
    const auto incoming = [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
      const V d = load_n(gradient + i, k);
      if constexpr (!kRelu) return d;
      return behind_relu<T>(d, fma(distance(i, k), a, b));
    };
    out[w] = static_cast<double>(pairwise_sum<T>(0, length, incoming));
    out[width + w] = static_cast<double>(pairwise_sum<T>(
        0, length, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return incoming(i, k) * distance(i, k); }));
  }
  void scalar(std::int64_t w) const {
    double sum = 0, product = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const N distance = number(x[w * xs.width + i * xs.length]) - mean[w];
      N d = number(dy[w * ds.width + i * ds.length]);
      if constexpr (kRelu) d = behind_relu<T>(d, distance * scale[w] + bias[w]);
      sum += static_cast<double>(d);
      product += static_cast<double>(d * distance);
    }
    out[w] = sum;
    out[width + w] = product;
  }
};

template <class T, bool kRelu>
void gradient_sums(double* out, const void* dy, const void* x, std::int64_t width, std::int64_t length, TileStrides ds,
                   TileStrides xs, const void* mean, const void* scale, const void* bias) {
  using N = Number<T>;
  walk<T>(
      width, channels_dense(xs) && channels_dense(ds), positions_dense(xs) && positions_dense(ds),
      GradientSums<T, kRelu>{out, static_cast<const T*>(dy), static_cast<const T*>(x), width, length, ds, xs,
                             static_cast<const N*>(mean), static_cast<const N*>(scale), static_cast<const N*>(bias)});
}

template <class T, bool kRelu>
struct Gradient {
  using N = Number<T>;
  using V = Vector<T>;
  T* dx;
  const T *dy, *x;
  std::int64_t length;
  TileStrides s, ds, xs;
  const N *mean, *scale, *bias, *slope, *shift;

  template <int kVectors>
  HALFGRAD_INLINE void columns(std::int64_t w, std::int64_t k) const {
    V m[kVectors], a[kVectors], b[kVectors], p[kVectors], q[kVectors];
    for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
      m[v] = load_n(mean + w + at, n), a[v] = load_n(scale + w + at, n), b[v] = load_n(bias + w + at, n);
      p[v] = load_n(slope + w + at, n), q[v] = load_n(shift + w + at, n);
    });
    for (std::int64_t i = 0; i < length; ++i)
      for_vectors<T, kVectors>(k, [&](auto v, std::int64_t at, std::int64_t n) HALFGRAD_LAMBDA {
        const V distance = load_n(x + w + at + i * xs.length, n) - m[v];
        V d = load_n(dy + w + at + i * ds.length, n);
        if constexpr (kRelu) d = behind_relu<T>(d, fma(distance, a[v], b[v]));
        store_n(dx + w + at + i * s.length, fma(d, a[v], fma(distance, p[v], q[v])), n);
      });
  }
  HALFGRAD_INLINE void row(std::int64_t w) const {
    const V m = spread<T>(mean[w]), a = spread<T>(scale[w]), b = spread<T>(bias[w]);
    const V p = spread<T>(slope[w]), q = spread<T>(shift[w]);
    const T *gradient = dy + w * ds.width, *line = x + w * xs.width;
    T* to = dx + w * s.width;
    for (std::int64_t i = 0; i < length; i += lanes_of<T>) {
      const std::int64_t k = length - i < lanes_of<T> ? length - i : lanes_of<T>;
      const V distance = load_n(line + i, k) - m;
      V d = load_n(gradient + i, k);
      if constexpr (kRelu) d = behind_relu<T>(d, fma(distance, a, b));
      store_n(to + i, fma(d, a, fma(distance, p, q)), k);
    }
  }
  void scalar(std::int64_t w) const {
    for (std::int64_t i = 0; i < length; ++i) {
      const N distance = number(x[w * xs.width + i * xs.length]) - mean[w];
      N d = number(dy[w * ds.width + i * ds.length]);
      if constexpr (kRelu) d = behind_relu<T>(d, distance * scale[w] + bias[w]);
      assign(dx[w * s.width + i * s.length], d * scale[w] + (distance * slope[w] + shift[w]));
    }
  }
};

template <class T, bool kRelu>
void gradient(void* dx, const void* dy, const void* x, std::int64_t width, std::int64_t length, TileStrides s,
              TileStrides ds, TileStrides xs, const void* mean, const void* scale, const void* bias, const void* slope,
              const void* shift) {
  using N = Number<T>;
  walk<T>(width, channels_dense(s) && channels_dense(ds) && channels_dense(xs),
          positions_dense(s) && positions_dense(ds) && positions_dense(xs),
          Gradient<T, kRelu>{static_cast<T*>(dx), static_cast<const T*>(dy), static_cast<const T*>(x), length, s, ds,
                             xs, static_cast<const N*>(mean), static_cast<const N*>(scale), static_cast<const N*>(bias),
                             static_cast<const N*>(slope), static_cast<const N*>(shift)});
}

// --- layer normalisation, a row at a time ----------------------------------------------------------------------------

// A row as Numbers: where it lies, when it is that already, else converted into the buffer.
template <class T>
HALFGRAD_INLINE const Number<T>* dense_row(const T* x, std::int64_t n, std::int64_t stride, Number<T>* buffer) {
  if constexpr (std::is_same_v<T, Number<T>>)
    if (stride == 1) return x;
  load_line(buffer, x, n, stride);
  return buffer;
}
// y = f(i, k), by way of the buffer when y is not dense. What f reads may be in the buffer.
template <class T, class F>
HALFGRAD_INLINE void map_row(T* y, std::int64_t n, std::int64_t stride, Number<T>* buffer, F f) {
  if (stride == 1) return map(y, n, f);
  map(buffer, n, f);
  store_line(y, buffer, n, stride);
}

template <class T>
void layer_norm(void* y, void* mean_out, void* rstd_out, const void* x, std::int64_t n, std::int64_t y_stride,
                std::int64_t x_stride, const void* weight_memory, const void* bias_memory, double eps, void* memory) {
  using N = Number<T>;
  using V = Vector<T>;
  auto* buffer = static_cast<N*>(memory);
  const auto *weight = static_cast<const N*>(weight_memory), *bias = static_cast<const N*>(bias_memory);
  const N* row = dense_row(static_cast<const T*>(x), n, x_stride, buffer);
  const auto length = static_cast<double>(n);
  const N rough =
      static_cast<N>(static_cast<double>(pairwise_sum<T>(
                         0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(row + i, k); })) /
                     length);
  const V center = spread<T>(rough);
  const auto distance = [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    return k == lanes_of<T> ? load(row + i) - center : first_n(load_n(row + i, k) - center, k);
  };
  const N distances = pairwise_sum<T>(0, n, distance);
  const N squares = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const V d = distance(i, k);
    return d * d;
  });
  const Spread moments(static_cast<double>(rough), static_cast<double>(distances), static_cast<double>(squares),
                       1 / length);
  const N mean = static_cast<N>(moments.mean);
  const N rstd = static_cast<N>(1 / __builtin_sqrt(moments.squares / length + eps));
  *static_cast<N*>(mean_out) = mean;
  *static_cast<N*>(rstd_out) = rstd;
  // The distances are those from `rough`; what is left to the mean itself is small and added to each.
  const V rest = spread<T>(static_cast<N>(static_cast<double>(rough) - moments.mean)), scale = spread<T>(rstd);
  map_row(static_cast<T*>(y), n, y_stride, buffer, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    return (load_n(row + i, k) - center + rest) * scale * load_n(weight + i, k) + load_n(bias + i, k);
  });
}

// g = dy * weight and z = (x - mean) * rstd give dx = rstd * (g - mean(g) - z * mean(g z)).
template <class T>
void layer_norm_backward(void* dx, void* dweight_memory, void* dbias_memory, const void* dy_memory,
                         const void* x_memory, std::int64_t n, std::int64_t dx_stride, std::int64_t dy_stride,
                         std::int64_t x_stride, double mean_value, double rstd_value, const void* weight_memory,
                         void* memory) {
  using N = Number<T>;
  using V = Vector<T>;
  auto *g = static_cast<N*>(memory), *z = g + n;
  auto *dweight = static_cast<N*>(dweight_memory), *dbias = static_cast<N*>(dbias_memory);
  const auto* weight = static_cast<const N*>(weight_memory);
  const V mean = spread<T>(static_cast<N>(mean_value)), rstd = spread<T>(static_cast<N>(rstd_value));
  const N* dy = dense_row(static_cast<const T*>(dy_memory), n, dy_stride, g);
  const N* x = dense_row(static_cast<const T*>(x_memory), n, x_stride, z);
  const N sum_g = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const V d = load_n(dy + i, k), distance = (load_n(x + i, k) - mean) * rstd, weighted = d * load_n(weight + i, k);
    store_n(dweight + i, load_n(dweight + i, k) + d * distance, k);
    store_n(dbias + i, load_n(dbias + i, k) + d, k);
    store_n(z + i, distance, k);
    store_n(g + i, weighted, k);
    return weighted;
  });
  if (dx == nullptr) return;
  const N sum_gz = pairwise_sum<T>(
      0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(g + i, k) * load_n(z + i, k); });
  const auto length = static_cast<double>(n);
  const V mean_g = spread<T>(static_cast<N>(static_cast<double>(sum_g) / length));
  const V mean_gz = spread<T>(static_cast<N>(static_cast<double>(sum_gz) / length));
  map_row(static_cast<T*>(dx), n, dx_stride, g, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    return rstd * (load_n(g + i, k) - mean_g - load_n(z + i, k) * mean_gz);
  });
}

template <class T>
void fill(NormKernels& k, int dtype) {
  k.moments[dtype] = moments<T>;
  k.normalize[dtype] = normalize<T>;
  k.gradient_sums[0][dtype] = gradient_sums<T, false>;
  k.gradient_sums[1][dtype] = gradient_sums<T, true>;
  k.gradient[0][dtype] = gradient<T, false>;
  k.gradient[1][dtype] = gradient<T, true>;
  k.layer_norm[dtype] = layer_norm<T>;
  k.layer_norm_backward[dtype] = layer_norm_backward<T>;
}

}  // namespace

NormKernels norm_kernels() {
  NormKernels k;
  fill<half_bits>(k, 0);
  fill<float>(k, 1);
  fill<double>(k, 2);
  return k;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
