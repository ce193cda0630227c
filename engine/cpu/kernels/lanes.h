#pragma once
// One way to write a kernel for all dtypes. A kernel template gets T, the type in memory; Number<T> is what T
// is computed in, and Vector<T> holds as many of those as are handled at a time: a vfloat for half and float,
// a single number for double and the integers, which training does not use.

#include "engine/cpu/simd.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

template <class T>
struct Computed {
  using Number = std::int64_t;
  using Vector = std::int64_t;
};
template <>
struct Computed<half_bits> {
  using Number = float;
  using Vector = vfloat;
};
template <>
struct Computed<float> {
  using Number = float;
  using Vector = vfloat;
};
template <>
struct Computed<double> {
  using Number = double;
  using Vector = double;
};
template <class T>
using Number = typename Computed<T>::Number;
template <class T>
using Vector = typename Computed<T>::Vector;
template <class T>
inline constexpr int lanes_of = sizeof(Vector<T>) / sizeof(Number<T>);

// load_n, store_n: the first n lanes, as in simd.h. With a single lane n is 1.
HALFGRAD_INLINE double load(const double* p) { return *p; }
HALFGRAD_INLINE double load_n(const double* p, std::int64_t) { return *p; }
HALFGRAD_INLINE void store(double* p, double v) { *p = v; }
HALFGRAD_INLINE void store_n(double* p, double v, std::int64_t) { *p = v; }
HALFGRAD_INLINE double fma(double a, double b, double c) { return a * b + c; }
HALFGRAD_INLINE double sum_of_lanes(double v) { return v; }
HALFGRAD_INLINE double at_least(double x, double bound) { return x < bound ? bound : x; }

#define HALFGRAD_INTEGER_LANE(T)                               \
  HALFGRAD_INLINE std::int64_t load(const T* p) { return *p; } \
  HALFGRAD_INLINE std::int64_t load_n(const T* p, std::int64_t) { return *p; }
HALFGRAD_INTEGER_LANE(std::int64_t)
HALFGRAD_INTEGER_LANE(std::int32_t)
HALFGRAD_INTEGER_LANE(std::uint8_t)
HALFGRAD_INTEGER_LANE(bool)
#undef HALFGRAD_INTEGER_LANE
HALFGRAD_INLINE void store(std::int64_t* p, std::int64_t v) { *p = v; }
HALFGRAD_INLINE void store_n(std::int64_t* p, std::int64_t v, std::int64_t) { *p = v; }

/// x in every lane.
template <class T>
HALFGRAD_INLINE Vector<T> spread(Number<T> x) {
  if constexpr (lanes_of < T >> 1) {
    return broadcast(x);
  } else {
    return x;
  }
}

/// The first n lanes of v and, from there on, those of `rest`.
HALFGRAD_INLINE vfloat first_n(vfloat v, std::int64_t n, vfloat rest = vfloat{}) {
  vint lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane < static_cast<std::int32_t>(n) ? v : rest;
}
HALFGRAD_INLINE double first_n(double v, std::int64_t, double = 0) { return v; }

/// x in its Number, which holds it exactly.
template <class T>
HALFGRAD_INLINE Number<T> number(T x) {
  if constexpr (lanes_of < T >> 1) {
    return to_float(x);
  } else {
    return x;
  }
}

/// Rounds once.
HALFGRAD_INLINE void assign(half_bits& y, float x) { y = float_to_half(x); }
HALFGRAD_INLINE void assign(half_bits& y, double x) { y = double_to_half(x); }
HALFGRAD_INLINE void assign(float& y, double x) { y = static_cast<float>(x); }
HALFGRAD_INLINE void assign(float& y, float x) { y = x; }
HALFGRAD_INLINE void assign(double& y, double x) { y = x; }
HALFGRAD_INLINE void assign(std::int64_t& y, std::int64_t x) { y = x; }

// --- sums over contiguous memory -------------------------------------------------------------------------------------

/// The sum of f(i, k), a vector with the terms i, i+1, ... i+k-1 in its first lanes and 0 in the others, over
/// [begin, end). Blocks of 1024 are summed in 32 lanes, which are then added in halves; blocks are added
/// pairwise. So every term goes through at most 38 + log2(n / 1024) additions.
template <class T, class F>
Number<T> pairwise_sum(std::int64_t begin, std::int64_t end, F f) {
  constexpr std::int64_t kBlock = 1024;
  constexpr int kVectors = 32 / lanes_of<T>;
  if (end - begin > kBlock) {
    const std::int64_t middle = begin + (end - begin + 2 * kBlock - 1) / (2 * kBlock) * kBlock;
    return pairwise_sum<T>(begin, middle, f) + pairwise_sum<T>(middle, end, f);
  }
  Vector<T> sums[kVectors] = {};
  std::int64_t i = begin;
  for (; i + 32 <= end; i += 32)
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { sums[v] = sums[v] + f(i + v * lanes_of<T>, lanes_of<T>); });
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA {
    const std::int64_t at = i + v * lanes_of<T>, rest = end - at;
    if (rest > 0) sums[v] = sums[v] + f(at, rest < lanes_of<T> ? rest : lanes_of<T>);
  });
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int v = 0; v < half; ++v) sums[v] = sums[v] + sums[v + half];
  return sum_of_lanes(sums[0]);
}

// --- vectors over contiguous memory ----------------------------------------------------------------------------------

/// y[i..] = f(i, k) for all of [0, n), k lanes at a time.
template <class T, class F>
HALFGRAD_INLINE void map(T* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + lanes_of<T> <= n; i += lanes_of<T>) store(y + i, f(i, std::int64_t{lanes_of<T>}));
  if (i < n) store_n(y + i, f(i, n - i), n - i);
}

// --- lines: n elements that are `stride` apart, in and out of a dense buffer -----------------------------------------

template <class T>
void load_line(Number<T>* buffer, const T* x, std::int64_t n, std::int64_t stride) {
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + lanes_of<T> <= n; i += lanes_of<T>) store(buffer + i, load(x + i));
    if (i < n) store_n(buffer + i, load_n(x + i, n - i), n - i);
  } else {
    for (; i < n; ++i) buffer[i] = number(x[i * stride]);
  }
}

template <class T>
void store_line(T* y, const Number<T>* buffer, std::int64_t n, std::int64_t stride) {
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + lanes_of<T> <= n; i += lanes_of<T>) store(y + i, load(buffer + i));
    if (i < n) store_n(y + i, load_n(buffer + i, n - i), n - i);
  } else {
    for (; i < n; ++i) assign(y[i * stride], buffer[i]);
  }
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
