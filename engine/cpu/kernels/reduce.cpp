#include "engine/cpu/kernels/reduce.h"

#include "engine/cpu/kernels/lanes.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

// --- the operations, on numbers and on vectors of floats -------------------------------------------------------------

// Integers wrap around.
template <class V>
HALFGRAD_INLINE V plus(V a, V b) {
  return a + b;
}
HALFGRAD_INLINE std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
template <class V>
HALFGRAD_INLINE V times(V a, V b) {
  return a * b;
}
HALFGRAD_INLINE std::int64_t times(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

template <class N>
inline constexpr N lowest = -__builtin_inff();
template <>
inline constexpr std::int64_t lowest<std::int64_t> = INT64_MIN;
template <class N>
inline constexpr N highest = __builtin_inff();
template <>
inline constexpr std::int64_t highest<std::int64_t> = INT64_MAX;

struct Sum {
  template <class N>
  static constexpr N identity = 0;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x;
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return plus(a, b);
  }
};
struct Prod {
  template <class N>
  static constexpr N identity = 1;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x;
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return times(a, b);
  }
};
struct Max {  // b != b: a NaN wins, and nothing is greater than it
  template <class N>
  static constexpr N identity = lowest<N>;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x;
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct Min {
  template <class N>
  static constexpr N identity = highest<N>;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x;
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Any {
  template <class N>
  static constexpr N identity = 0;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x != 0 ? V{} + 1 : V{};
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return b > a ? b : a;
  }
};
struct All {
  template <class N>
  static constexpr N identity = 1;
  template <class V>
  HALFGRAD_INLINE static V value(V x) {
    return x != 0 ? V{} + 1 : V{};
  }
  template <class V>
  HALFGRAD_INLINE static V combine(V a, V b) {
    return b < a ? b : a;
  }
};

// --- tiles -----------------------------------------------------------------------------------------------------------

template <class Op, class N>
HALFGRAD_INLINE N combine_lanes(N (&lanes)[32]) {
  for (int half = 16; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] = Op::combine(lanes[l], lanes[l + half]);
  return lanes[0];
}

// n contiguous elements: element i goes to lane i % 32, then lanes are combined in halves. The lanes are the
// same on every instruction set, and so are the bits of a sum.
template <class Op, class T>
Number<T> reduce_row(const T* x, std::int64_t n) {
  if constexpr (lanes_of<T> == 1) {  // integers and doubles, which training does not sum up: less code
    Number<T> lanes[32];
    for (Number<T>& lane : lanes) lane = Op::template identity<Number<T>>;
    for (std::int64_t i = 0; i < n; ++i) lanes[i % 32] = Op::combine(lanes[i % 32], Op::value(number(x[i])));
    return combine_lanes<Op>(lanes);
  } else {
    constexpr int kVectors = 32 / lanes_of<T>;
    Number<T> lanes[32];
    Vector<T> acc[kVectors];
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { acc[v] = spread<T>(Op::template identity<Number<T>>); });
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32)
      unroll<kVectors>([&](auto v)
                           HALFGRAD_LAMBDA { acc[v] = Op::combine(acc[v], Op::value(load(x + i + v * lanes_of<T>))); });
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA {
      const std::int64_t at = i + v * lanes_of<T>;
      if (at + lanes_of<T> <= n) acc[v] = Op::combine(acc[v], Op::value(load(x + at)));
      store(lanes + v * lanes_of<T>, acc[v]);
    });
    for (std::int64_t j = n - n % lanes_of<T>; j < n; ++j)
      lanes[j - i] = Op::combine(lanes[j - i], Op::value(number(x[j])));
    return combine_lanes<Op>(lanes);
  }
}

template <class Op, class T>
Number<T> reduce_strided(const T* x, std::int64_t n, std::int64_t stride) {
  Number<T> acc = Op::template identity<Number<T>>;
  for (std::int64_t i = 0; i < n; ++i) acc = Op::combine(acc, Op::value(number(x[i * stride])));
  return acc;
}

// kVectors vectors of neighbouring columns, in registers on the way down.
template <class Op, int kVectors, class T>
HALFGRAD_INLINE void reduce_columns(Number<T>* out, const T* x, std::int64_t rows, std::int64_t row_stride) {
  Vector<T> acc[kVectors];
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { acc[v] = spread<T>(Op::template identity<Number<T>>); });
  for (std::int64_t i = 0; i < rows; ++i)
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA {
      acc[v] = Op::combine(acc[v], Op::value(load(x + i * row_stride + v * lanes_of<T>)));
    });
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { store(out + v * lanes_of<T>, acc[v]); });
}

template <class Op, class T>
void tile(void* out_memory, const void* x_memory, std::int64_t width, std::int64_t width_stride, std::int64_t length,
          std::int64_t length_stride) {
  auto* out = static_cast<Number<T>*>(out_memory);
  const auto* x = static_cast<const T*>(x_memory);
  constexpr int kLanesOfT = lanes_of<T>;
  if (width_stride == 1) {
    std::int64_t w = 0;
    for (; w + 4 * kLanesOfT <= width; w += 4 * kLanesOfT) reduce_columns<Op, 4>(out + w, x + w, length, length_stride);
    for (; w + kLanesOfT <= width; w += kLanesOfT) reduce_columns<Op, 1>(out + w, x + w, length, length_stride);
    if (w < width) {
      Vector<T> acc = spread<T>(Op::template identity<Number<T>>);
      for (std::int64_t i = 0; i < length; ++i)
        acc = Op::combine(acc, Op::value(load_n(x + w + i * length_stride, width - w)));
      store_n(out + w, acc, width - w);
    }
  } else if (length_stride == 1 && length >= 32) {
    for (std::int64_t w = 0; w < width; ++w) out[w] = reduce_row<Op>(x + w * width_stride, length);
  } else {
    for (std::int64_t w = 0; w < width; ++w) out[w] = reduce_strided<Op>(x + w * width_stride, length, length_stride);
  }
}

template <class Op, class N>
void merge(void* a_memory, const void* b_memory, std::int64_t width) {
  auto* a = static_cast<N*>(a_memory);
  const auto* b = static_cast<const N*>(b_memory);
  for (std::int64_t w = 0; w < width; ++w) a[w] = Op::combine(a[w], b[w]);
}

// --- positions and running sums --------------------------------------------------------------------------------------

template <class Op, class T>
std::int64_t position(const void* x_memory, std::int64_t n, std::int64_t stride) {
  const auto* x = static_cast<const T*>(x_memory);
  std::int64_t best_at = 0;
  Number<T> best = number(x[0]);
  for (std::int64_t i = 1; i < n && best == best; ++i) {
    const Number<T> candidate = number(x[i * stride]);
    if (Op::combine(best, candidate) != best) {  // also true for a NaN
      best = candidate;
      best_at = i;
    }
  }
  return best_at;
}

// Floats are added in double: as exact as a sum in blocks, without blocks.
template <class T>
struct Running {
  using Sum = std::int64_t;
  using Out = std::int64_t;
};
template <>
struct Running<half_bits> {
  using Sum = double;
  using Out = half_bits;
};
template <>
struct Running<float> {
  using Sum = double;
  using Out = float;
};
template <>
struct Running<double> {
  using Sum = double;
  using Out = double;
};

template <class T>
void cumsum(void* y_memory, const void* x_memory, std::int64_t n, std::int64_t y_stride, std::int64_t x_stride) {
  auto* y = static_cast<typename Running<T>::Out*>(y_memory);
  const auto* x = static_cast<const T*>(x_memory);
  typename Running<T>::Sum sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum = plus(sum, static_cast<typename Running<T>::Sum>(number(x[i * x_stride])));
    assign(y[i * y_stride], sum);
  }
}

template <class T>
void fill(ReduceKernels& k, int dtype) {
  int op = 0;
  const auto add = [&]<class Op>(Op) {
    k.tile[op][dtype] = tile<Op, T>;
    k.merge[op++][dtype] = merge<Op, Number<T>>;
  };
  add(Sum{}), add(Prod{}), add(Max{}), add(Min{}), add(Any{}), add(All{});
  k.position[0][dtype] = position<Max, T>;
  k.position[1][dtype] = position<Min, T>;
  k.cumsum[dtype] = cumsum<T>;
}

}  // namespace

ReduceKernels reduce_kernels() {
  ReduceKernels k;
  fill<half_bits>(k, 0);
  fill<float>(k, 1);
  fill<double>(k, 2);
  fill<std::int32_t>(k, 3);
  fill<std::int64_t>(k, 4);
  fill<std::uint8_t>(k, 5);
  fill<bool>(k, 6);
  return k;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
