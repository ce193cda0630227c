#pragma once
// Vectors of floats for the kernels, with half precision in memory.
//
// This header is compiled once per instruction set, into its own namespace (see kernels.h). A vector has
// kLanes floats: 16 with AVX512, 8 with AVX2, else 4. It is a vector type of GCC and clang, so +, -, *, /,
// comparisons and ?: work on it, also with a float on one side. In memory numbers are float or the 16 bits of
// a half; a half is converted on the way in and rounded to nearest even on the way out, by instructions where
// they exist. All versions agree bit for bit.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef HALFGRAD_ISA
#error "files in engine/cpu/kernels/ need -DHALFGRAD_ISA=baseline, avx2 or avx512"
#endif

#define HALFGRAD_INLINE [[gnu::always_inline]] inline

namespace halfgrad::cpu::HALFGRAD_ISA {

using half_bits = std::uint16_t;

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HALFGRAD_AVX2 1
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vfloat __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t vint __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t vuint __attribute__((vector_size(kLanes * 4)));
typedef half_bits vhalf __attribute__((vector_size(kLanes * 2)));

HALFGRAD_INLINE vfloat broadcast(float x) { return x - vfloat{}; }  // x - 0 keeps -0 and NaN; x + 0 would not

// --- memory that need not be aligned -----------------------------------------------------------------------
template <class V>
HALFGRAD_INLINE V load_bits(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V>
HALFGRAD_INLINE void store_bits(void* p, V v) {
  std::memcpy(p, &v, sizeof(V));
}

// --- half <-> float ----------------------------------------------------------------------------------------
#if defined(__AVX512F__)
// The forms with a mask of all lanes, because GCC 12 warns about its own header for those without.
inline constexpr __mmask16 kAllLanes = 0xFFFF;
HALFGRAD_INLINE vfloat widen(vhalf h) { return (vfloat)_mm512_maskz_cvtph_ps(kAllLanes, (__m256i)h); }
HALFGRAD_INLINE vhalf narrow(vfloat x) {
  return (vhalf)_mm512_maskz_cvtps_ph(kAllLanes, (__m512)x, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(HALFGRAD_AVX2)
HALFGRAD_INLINE vfloat widen(vhalf h) { return (vfloat)_mm256_cvtph_ps((__m128i)h); }
HALFGRAD_INLINE vhalf narrow(vfloat x) { return (vhalf)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT); }
#else
HALFGRAD_INLINE vfloat widen(vhalf h) {
  const vuint bits = __builtin_convertvector(h, vuint);
  const vuint magnitude = bits & 0x7FFF;
  const std::uint32_t bias = (127 - 15) << 23;  // from half's exponent to float's
  vuint normal = (magnitude << 13) + bias;
  normal = magnitude >= 0x7C00 ? normal + bias : normal;     // infinity and NaN: the largest exponent
  normal = magnitude > 0x7C00 ? normal | 0x400000 : normal;  // NaN: quiet
  // A subnormal half is a number of 2^-24 and a normal float.
  const vuint subnormal = (vuint)(__builtin_convertvector((vint)magnitude, vfloat) * 0x1p-24F);
  return (vfloat)((magnitude < 0x400 ? subnormal : normal) | (bits & 0x8000) << 16);
}
HALFGRAD_INLINE vhalf narrow(vfloat x) {
  const vuint bits = (vuint)x;
  const vuint magnitude = bits & 0x7FFFFFFF;
  // Drop 13 bits, rounding to nearest even. A carry moves on into the exponent, up to that of infinity.
  const vuint rounded = magnitude - ((127 - 15) << 23) + 0xFFF + (magnitude >> 13 & 1);
  vuint result = magnitude >= 0x47800000 ? vuint{} + 0x7C00 : rounded >> 13;  // 65536 and more: infinity
  // Below 2^-14 the sum with 0.5 rounds to a multiple of 2^-24, the spacing of subnormal halves.
  const vuint subnormal = (vuint)((vfloat)magnitude + 0.5F) - 0x3F000000;
  result = magnitude < 0x38800000 ? subnormal : result;
  result = magnitude > 0x7F800000 ? (magnitude >> 13 & 0x3FF) | 0x7E00 : result;  // NaN
  return __builtin_convertvector(result | (bits >> 16 & 0x8000), vhalf);
}
#endif

HALFGRAD_INLINE vfloat load(const float* p) { return load_bits<vfloat>(p); }
HALFGRAD_INLINE vfloat load(const half_bits* p) { return widen(load_bits<vhalf>(p)); }
HALFGRAD_INLINE void store(float* p, vfloat v) { store_bits(p, v); }
HALFGRAD_INLINE void store(half_bits* p, vfloat v) { store_bits(p, narrow(v)); }

// --- the first n lanes, 0 <= n <= kLanes; nothing beyond is touched, loaded lanes beyond are 0 --------------
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
HALFGRAD_INLINE __mmask16 first_lanes(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }
HALFGRAD_INLINE vfloat load_n(const float* p, std::int64_t n) {
  return (vfloat)_mm512_maskz_loadu_ps(first_lanes(n), p);
}
HALFGRAD_INLINE vfloat load_n(const half_bits* p, std::int64_t n) {
  return widen((vhalf)_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
HALFGRAD_INLINE void store_n(float* p, vfloat v, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), (__m512)v);
}
HALFGRAD_INLINE void store_n(half_bits* p, vfloat v, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), (__m256i)narrow(v));
}
#else
template <class T>
HALFGRAD_INLINE vfloat load_n(const T* p, std::int64_t n) {
  if (n == kLanes) return load(p);
  T lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
template <class T>
HALFGRAD_INLINE void store_n(T* p, vfloat v, std::int64_t n) {
  if (n == kLanes) return store(p, v);
  T lanes[kLanes];
  store(lanes, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
#endif

// --- arithmetic --------------------------------------------------------------------------------------------
/// a * b + c, rounded once where the machine can.
HALFGRAD_INLINE vfloat fma(vfloat a, vfloat b, vfloat c) {
#if defined(__AVX512F__)
  return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(HALFGRAD_AVX2)
  return (vfloat)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

/// x, but not more (less) than `bound`; NaN stays NaN.
HALFGRAD_INLINE vfloat at_most(vfloat x, float bound) {
#if defined(__AVX512F__)
  return (vfloat)_mm512_maskz_min_ps(kAllLanes, (__m512)broadcast(bound), (__m512)x);
#elif defined(HALFGRAD_AVX2)
  return (vfloat)_mm256_min_ps((__m256)broadcast(bound), (__m256)x);
#else
  return x > bound ? broadcast(bound) : x;
#endif
}
HALFGRAD_INLINE vfloat at_least(vfloat x, float bound) {
#if defined(__AVX512F__)
  return (vfloat)_mm512_maskz_max_ps(kAllLanes, (__m512)broadcast(bound), (__m512)x);
#elif defined(HALFGRAD_AVX2)
  return (vfloat)_mm256_max_ps((__m256)broadcast(bound), (__m256)x);
#else
  return x < bound ? broadcast(bound) : x;
#endif
}

HALFGRAD_INLINE float at_least(float x, float bound) { return x < bound ? bound : x; }

#if defined(__AVX512F__)
/// x * 2^k, rounded once, for a whole number k.
HALFGRAD_INLINE vfloat scale(vfloat x, vfloat k) {
  return (vfloat)_mm512_maskz_scalef_ps(kAllLanes, (__m512)x, (__m512)k);
}
#endif

HALFGRAD_INLINE vfloat sqrt(vfloat x) {
#if defined(__AVX512F__)
  return (vfloat)_mm512_maskz_sqrt_ps(kAllLanes, (__m512)x);
#elif defined(HALFGRAD_AVX2)
  return (vfloat)_mm256_sqrt_ps((__m256)x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

/// Whether a comparison holds in any lane.
HALFGRAD_INLINE bool any(vint mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(HALFGRAD_AVX2)
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  std::int32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= mask[i];
  return bits != 0;
#endif
}

/// The sum of all lanes, added in halves: lane i and lane i + kLanes/2 first.
HALFGRAD_INLINE float sum_of_lanes(vfloat v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// --- unrolling ---------------------------------------------------------------------------------------------
template <int... I>
struct Indices {};
template <int kCount, int... I>
struct CountUp : CountUp<kCount - 1, kCount - 1, I...> {};
template <int... I>
struct CountUp<0, I...> {
  using type = Indices<I...>;
};
template <int kIndex>
struct Index {
  static constexpr int value = kIndex;
  constexpr operator int() const { return kIndex; }
};

template <class F, int... I>
HALFGRAD_INLINE void unroll_indices(F&& f, Indices<I...>) {
  (f(Index<I>{}), ...);
}
/// f(Index<0>{}), f(Index<1>{}), ... written out one after the other. An array of vectors that is only
/// indexed by such constants lives in registers; indexed by a loop variable it may end up in memory. Mark the
/// lambda [[gnu::always_inline]] in the form `[&](auto i) HALFGRAD_LAMBDA { ... }`.
template <int kCount, class F>
HALFGRAD_INLINE void unroll(F&& f) {
  unroll_indices(f, typename CountUp<kCount>::type{});
}
#define HALFGRAD_LAMBDA __attribute__((always_inline))

// --- transpose ---------------------------------------------------------------------------------------------
// Swaps, in two rows that are kStep apart, the off-diagonal blocks of kStep lanes.
template <int kStep, int... I>
HALFGRAD_INLINE void exchange_blocks(vfloat& x, vfloat& y, Indices<I...>) {
  const vfloat low = __builtin_shufflevector(x, y, ((I & kStep) ? kLanes + I - kStep : I)...);
  const vfloat high = __builtin_shufflevector(x, y, ((I & kStep) ? kLanes + I : I + kStep)...);
  x = low;
  y = high;
}
/// Transposes a square of kLanes vectors: lane j of row i becomes lane i of row j.
template <int kStep = 1>
HALFGRAD_INLINE void transpose(vfloat (&rows)[kLanes]) {
  if constexpr (kStep < kLanes) {
    unroll<kLanes>([&](auto i) HALFGRAD_LAMBDA {
      if constexpr ((decltype(i)::value & kStep) == 0)
        exchange_blocks<kStep>(rows[i], rows[i + kStep], typename CountUp<kLanes>::type{});
    });
    transpose<kStep * 2>(rows);
  }
}

// --- single numbers and arrays -----------------------------------------------------------------------------
HALFGRAD_INLINE float to_float(float x) { return x; }
HALFGRAD_INLINE float to_float(half_bits h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  return widen(vhalf{h})[0];
#endif
}
HALFGRAD_INLINE half_bits float_to_half(float x) {
#if defined(__F16C__)
  return static_cast<half_bits>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
#else
  return narrow(vfloat{x})[0];
#endif
}
/// Rounds once, not by way of the nearest float: the float in between is rounded to odd, that is, an inexact
/// one gets its last bit set, which keeps it away from the ties between two halves.
HALFGRAD_INLINE half_bits double_to_half(double x) {
  float nearest = static_cast<float>(x);
  const double back = nearest;
  std::uint32_t bits;
  std::memcpy(&bits, &nearest, sizeof bits);
  if (back != x && x == x && bits % 2 == 0) {
    const bool away = x > 0 ? back < x : back > x;  // the odd neighbour on the side of x
    bits = away ? bits + 1 : bits - 1;
    if (nearest == 0) bits = 1U | (x < 0 ? 0x80000000U : 0U);
    std::memcpy(&nearest, &bits, sizeof bits);
  }
  return float_to_half(nearest);
}

HALFGRAD_INLINE void convert(float x, float& y) { y = x; }
HALFGRAD_INLINE void convert(float x, half_bits& y) { y = float_to_half(x); }

HALFGRAD_INLINE void half_to_float(const half_bits* from, float* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
HALFGRAD_INLINE void float_to_half(const float* from, half_bits* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
HALFGRAD_INLINE void double_to_half(const double* from, half_bits* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = double_to_half(from[i]);
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
