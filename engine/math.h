#pragma once
// exp, log, sin, erf and their kin in single precision, with the same bits on every CPU and every GPU.
//
// They are written with IEEE additions, multiplications and divisions alone, so that it does not matter who computes
// them, nor how many at a time. There are no fused multiply-adds, which not every CPU has, but for one that does not
// round. NaN gives NaN, and infinities, zeros of both signs and subnormal numbers give what the C library gives. How far
// they may be from the exact result was found over all floats (tests/slow/test_math_all_floats.cpp): in units in the
// last place it is at most
//
//     exp 1   expm1 1.7   log 1   log1p 1.7   sin, cos 1.1   tanh 1.4   erf 1.1   erfc 1.9   gelu 2
//
// The pattern is always the same: the argument is brought into a small interval, where a polynomial is as good as
// exact, and the result is put together from that. The coefficients are minimax fits (the algorithm of Remez) of the
// relative error.
//
// T is float in a kernel for a GPU, and Floats, a vector of them (cpu/kernels/floats.h), in one for a CPU. As in the
// structs of elementwise ops, nothing may branch on a T: where(condition, a, b) chooses in each lane.

#include <cmath>
#include <cstdint>
#include <type_traits>

// The CPU's kernels are compiled once per instruction set; the inline namespace keeps the copies apart at link time.
#ifndef HALFGRAD_ISA
#define HALFGRAD_ISA portable
#endif

#if defined(__CUDACC__)
#define HALFGRAD_MATH __host__ __device__ __forceinline__
#else
#define HALFGRAD_MATH [[gnu::always_inline]] inline
#endif

namespace halfgrad::math {
inline namespace HALFGRAD_ISA {

/// float, or a class of several.
template <class T>
concept Single = std::is_same_v<T, float> || requires {
  typename T::Bits;
};

// --- bits ------------------------------------------------------------------------------------------------------------

template <class T>
struct BitsOf {
  using type = typename T::Bits;
};
template <>
struct BitsOf<float> {
  using type = std::uint32_t;
};
template <class T>
using Bits = typename BitsOf<T>::type;

template <Single T>
HALFGRAD_MATH Bits<T> bits(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}
template <Single T>
HALFGRAD_MATH T from_bits(Bits<T> x) {
  return __builtin_bit_cast(T, x);
}

inline constexpr std::uint32_t kSign = 0x80000000;
inline constexpr float kInfinity = __builtin_inff(), kNan = __builtin_nanf("");

template <Single T>
HALFGRAD_MATH T abs(T x) {
  return from_bits<T>(bits(x) & ~kSign);
}
/// The magnitude of x with the sign of `sign`.
template <Single T>
HALFGRAD_MATH T copysign(T x, T sign) {
  return from_bits<T>((bits(x) & ~kSign) | (bits(sign) & kSign));
}

// --- what a vector of floats has versions of its own for -------------------------------------------------------------

template <class T>
constexpr T where(bool condition, T a, T b) {
  return condition ? a : b;
}
/// x, but not more (less) than `bound`; NaN stays NaN.
template <Single T>
HALFGRAD_MATH T at_most(T x, float bound) {
  return where(x > bound, T(bound), x);
}
template <Single T>
HALFGRAD_MATH T at_least(T x, float bound) {
  return where(x < bound, T(bound), x);
}

/// The sum of this and x, |x| < 2^22, has no bits for a fraction: it is rounded to nearest, ties to even, and has the
/// whole number in its lowest bits.
inline constexpr float kWhole = 0x1.8p23F;

template <Single T>
HALFGRAD_MATH T nearest(T x) {
  return (x + kWhole) - kWhole;
}
/// 2^k for a whole number -127 < k < 128: its exponent field is k + 127.
template <Single T>
HALFGRAD_MATH T power_of_two(T k) {
  return from_bits<T>(bits(k + (kWhole + 127)) << 23);
}
/// x * 2^k, rounded once, for a whole number k, |k| < 200, and |x| between 2^-24 and 2^24, or 0. In two steps, of which
/// the first is exact, since 2^k need not be a normal number.
template <Single T>
HALFGRAD_MATH T scale(T x, T k) {
  const T half = nearest(k * 0.5F);
  return x * power_of_two(half) * power_of_two(k - half);
}

/// a b - c without rounding, where c is a b rounded, or a is c / b rounded: the difference is a float. That is one
/// fused multiply-add, or several operations that give the same bits.
HALFGRAD_MATH float product_minus(float a, float b, float c) { return ::fmaf(a, b, -c); }

// --- exponentials ----------------------------------------------------------------------------------------------------

inline constexpr float kLog2OfE = 1.44269504F;
/// ln 2 in two parts: the first has so few bits that it is exact times any exponent.
inline constexpr float kLn2 = 0.693359375F, kLn2Rest = -2.12194440e-4F;

/// x = k ln 2 + r + low with |r| <= ln 2 / 2, for |x| < 2^14; low is what r lost when it was rounded.
template <Single T>
struct ExpRange {
  T k, r, low;
};
template <Single T>
HALFGRAD_MATH ExpRange<T> exp_range(T x) {
  const T k = nearest(x * kLog2OfE), high = x - k * kLn2, correction = k * kLn2Rest;
  const T r = high - correction;
  return {k, r, (high - r) - correction};
}
/// A polynomial in x, its coefficients from the constant on.
template <Single T, class... C>
HALFGRAD_MATH T polynomial(T x, float first, C... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return T(first);
  } else {
    return polynomial(x, rest...) * x + first;
  }
}
/// e^r = 1 + r + r^2 * this
template <Single T>
HALFGRAD_MATH T exp_polynomial(T r) {
  return polynomial(r, 0.4999999404F, 0.1666651517F, 0.04166807979F, 0.008369368501F, 0.001384145464F);
}

/// Beyond -104 and 89 e^x is 0 or infinity.
template <Single T>
HALFGRAD_MATH T exp(T x) {
  const ExpRange<T> range = exp_range(at_least(at_most(x, 89.0F), -104.0F));
  const T r = range.r;
  return scale(1.0F + (r + r * r * exp_polynomial(r)), range.k);
}
/// e^x - 1, exact near 0.
template <Single T>
HALFGRAD_MATH T expm1(T x) {
  const ExpRange<T> range = exp_range(at_least(at_most(x, 89.0F), -18.0F));
  const T r = range.r;
  const T q = r + (r * r * exp_polynomial(r) + range.low);
  // 2^k (1 + q) - 1 = 2^k (q + (1 - 2^-k)), where the inner bracket is exact for the k that matter
  const T y = scale(q + (1.0F - power_of_two(-at_most(range.k, 126.0F))), range.k);
  return where(x == 0.0F, x, y);  // keeps -0
}

template <Single T>
HALFGRAD_MATH T tanh(T x) {
  const T a = abs(x), square = a * a;
  const T p = polynomial(square, -0.3333328068F, 0.1333140582F, -0.05373651534F, 0.02062816545F, -0.005692290608F);
  const T small = a + a * (square * p);
  const T large = 1.0F - 2.0F / (exp(a + a) + 1.0F);
  return copysign(where(a < 0.625F, small, large), x);
}

// --- logarithms ------------------------------------------------------------------------------------------------------

/// x = 2^exponent * m with m in [2/3, 4/3), for positive normal numbers.
template <Single T>
struct LogRange {
  T exponent, m;
};
template <Single T>
HALFGRAD_MATH LogRange<T> log_range(T x) {
  // After the bits of 2/3 have become 128 in the exponent field, that is 128 too large and the rest is what m has more.
  constexpr std::uint32_t kTwoThirds = 0x3F2AAAAB;
  const Bits<T> u = bits(x) + (0x40000000U - kTwoThirds);
  // 2^23 + n has the whole number n in its lowest bits.
  return {from_bits<T>((u >> 23) + 0x4B000000U) - (0x1p23F + 128), from_bits<T>((u & 0x7FFFFFU) + kTwoThirds)};
}
/// log(2^exponent * (1 + f)) for 1 + f in [2/3, 4/3)
template <Single T>
HALFGRAD_MATH T log_of_parts(T f, T exponent) {
  const T square = f * f;
  const T p = polynomial(f, 0.333332151F, -0.249997973F, 0.200104058F, -0.16680488F, 0.140058711F, -0.121842481F,
                         0.139844313F, -0.128917381F);
  const T tail = f * square * p - 0.5F * square + exponent * kLn2Rest;
  return f + tail + exponent * kLn2;
}
/// y = log(x) for the numbers that have one, else what IEEE wants.
template <Single T>
HALFGRAD_MATH T log_or_special(T y, T x) {
  return where(x < 0.0F, T(kNan), where(x == 0.0F, T(-kInfinity), y));
}

template <Single T>
HALFGRAD_MATH T log(T x) {
  const auto subnormal = x < 0x1p-126F;
  const LogRange<T> range = log_range(where(subnormal, x * 0x1p23F, x));
  const T y = log_of_parts(range.m - 1.0F, where(subnormal, range.exponent - 23.0F, range.exponent));
  return where(x < kInfinity, log_or_special(y, x), x);
}

/// log(1 + x), exact near 0.
template <Single T>
HALFGRAD_MATH T log1p(T x) {
  const T sum = 1.0F + x;
  const T rest = where(x < 1.0F, x - (sum - 1.0F), 1.0F - (sum - x));  // what the addition lost
  const LogRange<T> range = log_range(sum);
  const T near = at_most(range.exponent, 100.0F);  // the rest of larger sums has no influence
  const T y = log_of_parts((range.m - 1.0F) + rest * power_of_two(-near), range.exponent);
  return where(x < kInfinity && x != 0.0F, log_or_special(y, sum), x);  // else infinity, NaN, or 0 with its sign
}

// --- sine and cosine -------------------------------------------------------------------------------------------------

/// sin(x + quarters * pi/2) for |x| up to kLargestAngle.
inline constexpr float kLargestAngle = 8192;
template <Single T>
HALFGRAD_MATH T sine_of_turned(T x, unsigned quarters) {
  // x = n pi/2 + r + low with |r| <= pi/4. pi/2 in four parts: n times the first three is exact.
  const T shifted = x * 0.636619772F + kWhole, n = shifted - kWhole;
  const T high = (x - n * 0x1.92p0F) - n * 0x1.fb4p-12F, correction = n * 0x1.444p-24F;
  const T r = high - correction;
  const T low = ((high - r) - correction) - n * 0x1.68c234p-39F;
  const T square = r * r;
  const T sine_rest = r * square * polynomial(square, -0.1666665524F, 0.00833218731F, -0.0001951789745F);
  const T cosine_rest =
      square * square * polynomial(square, 0.04166664556F, -0.001388730947F, 2.443232734e-5F) - r * low;
  const T sine = r + (sine_rest + low), cosine = 1.0F - (0.5F * square - cosine_rest);
  const Bits<T> turns = bits(shifted) + quarters;
  return from_bits<T>(bits(where((turns & 1U) == 0U, sine, cosine)) ^ (turns & 2U) << 30);
}

/// y with what `f` gives where |x| is large: that is rare, and many digits of pi are needed. A library's double, rounded, is
/// the same float nearly everywhere.
template <class F>
HALFGRAD_MATH float with_large_angles(float y, float x, F f) {
  return abs(x) > kLargestAngle ? f(x) : y;
}
template <Single T>
HALFGRAD_MATH T sin(T x) {
  const T y = from_bits<T>(bits(sine_of_turned(abs(x), 0)) ^ (bits(x) & kSign));  // keeps -0
  return with_large_angles(y, x, [](float v) { return static_cast<float>(::sin(static_cast<double>(v))); });
}
template <Single T>
HALFGRAD_MATH T cos(T x) {
  return with_large_angles(sine_of_turned(x, 1), x,
                           [](float v) { return static_cast<float>(::cos(static_cast<double>(v))); });
}

// --- the error function ----------------------------------------------------------------------------------------------

// erf and erfc of z = x, and of z = sqrt(1/2) x for the normal distribution, in whose density x^2 / 2 is the exponent.
// That z may not be rounded first: erfc would multiply its error by 2 z^2. So what follows takes x, and one of these for
// what z is.

struct Same {                                         // z = x
  static constexpr float square = 1;                  // (z/x)^2
  static constexpr float factor = 1;                  // z/x, or what two bits hold of it
  static constexpr float shift = 1.27002144F;         // 1.2700214385986328 x/z, a multiple of 2^-19
  static constexpr float numerator = 0.821309566F;    // 0.8213095664978027 x/z
  static constexpr float small = 0.8F, largest = 11;  // 0.8 x/z; and erfc is 0 from here on
  /// erf(z) = x (factor + this), for |z| <= 0.8.
  template <Single T>
  HALFGRAD_MATH static T erf_polynomial(T square) {
    return polynomial(square, 0.128379166F, -0.376126081F, 0.112831622F, -0.0268222429F, 0.00508686574F,
                      -0.000654225005F);
  }
};
struct TimesSqrtHalf {  // z = sqrt(1/2) x
  static constexpr float square = 0.5F;
  static constexpr float factor = 0.75F;
  static constexpr float shift = 1.79608154F;
  static constexpr float numerator = 1.16150713F;
  static constexpr float small = 1.13F, largest = 15.5F;
  template <Single T>
  HALFGRAD_MATH static T erf_polynomial(T square) {
    return polynomial(square, 0.0478845574F, -0.132980585F, 0.0199456345F, -0.00236999895F, 0.000224123272F,
                      -1.42415502e-05F);
  }
};

/// The first 12 bits of x, whose square is exact.
template <Single T>
HALFGRAD_MATH T first_bits(T x) {
  return from_bits<T>(bits(x) & ~0xFFFU);
}
/// 1 - erf(z) for 0 <= z <= 0.8, where much of 1 is cancelled: what is subtracted first is exact.
template <class Z, Single T>
HALFGRAD_MATH T small_erfc(T x) {
  const T high = first_bits(x);
  return (1.0F - high * Z::factor) - ((x - high) * Z::factor + x * Z::erf_polynomial(x * x));
}
/// a (1 - erf(z)) for z >= 0.8.
template <class Z, Single T>
HALFGRAD_MATH T large_erfc(T a, T x) {
  // e^(-z^2) = 2^k (1 + e). The square is in two parts, as ln 2 is.
  const T high = first_bits(x), square = high * high * -Z::square, square_rest = (x - high) * (x + high) * -Z::square;
  const T k = nearest(x * x * (Z::square * -kLog2OfE));
  const T first = square - k * kLn2, second = square_rest - k * kLn2Rest;
  const T r = first + second;
  const T e = r + (r * r * exp_polynomial(r) + ((first - r) + second));

  // (z + 1.27) e^(z^2) erfc(z) / 0.82 = 1 + p, a polynomial in 0.82 / (z + 1.27), which is this quotient.
  const T divisor = x + Z::shift, quotient = Z::numerator / divisor, u = quotient - 0.239810899F;
  const T p = u * polynomial(u, 1.48098588F, 0.318169326F, -2.03868008F, -0.106250517F, 4.88538647F, -4.05852652F,
                             -10.1049366F, 21.3957062F);
  // What the exact quotient has more, relative to it, of the division and of the divisor.
  const T divisor_rest = x - (divisor - Z::shift);
  const T more = (product_minus(quotient, divisor, T(Z::numerator)) + quotient * divisor_rest) * (-1 / Z::numerator);

  // a times the quotient times (1 + e) (1 + p), and what all of these roundings took from it.
  const T both = e + (p + e * p), factor = a * quotient, product = factor * both, sum = factor + product;
  const T rest = product_minus(a, quotient, factor) + product_minus(factor, both, product) + sum * more;
  return scale(sum + (((factor - sum) + product) + rest), k);
}
/// a (1 - erf(z)) for z >= 0 and x <= Z::largest.
template <class Z, Single T>
HALFGRAD_MATH T erfc_times(T a, T x) {
  return where(x < Z::small, a * small_erfc<Z>(x), large_erfc<Z>(a, x));
}

template <Single T>
HALFGRAD_MATH T erf(T x) {
  const T a = abs(x), small = a + a * Same::erf_polynomial(a * a);
  const T large = 1.0F - large_erfc<Same>(T(1.0F), at_most(a, Same::largest));
  return copysign(where(a < Same::small, small, large), x);
}
/// 1 - erf(x)
template <Single T>
HALFGRAD_MATH T erfc(T x) {
  const T y = erfc_times<Same>(T(1.0F), at_most(abs(x), Same::largest));
  return where(x < 0.0F, 2.0F - y, y);
}
/// The normal distribution function, erfc(-x / sqrt(2)) / 2.
template <Single T>
HALFGRAD_MATH T normal_cdf(T x) {
  const T y = erfc_times<TimesSqrtHalf>(T(0.5F), at_most(abs(x), TimesSqrtHalf::largest));
  return where(x > 0.0F, 1.0F - y, y);
}
/// x normal_cdf(x), as max(x, 0) - |x| normal_cdf(-|x|).
template <Single T>
HALFGRAD_MATH T gelu(T x) {
  const T a = at_most(abs(x), TimesSqrtHalf::largest);
  return where(x > 0.0F, x, x * 0.0F) - erfc_times<TimesSqrtHalf>(0.5F * a, a);  // NaN for -inf, as -inf * 0
}

// --- in double precision: the C library's ----------------------------------------------------------------------------

HALFGRAD_MATH double exp(double x) { return ::exp(x); }
HALFGRAD_MATH double expm1(double x) { return ::expm1(x); }
HALFGRAD_MATH double tanh(double x) { return ::tanh(x); }
HALFGRAD_MATH double log(double x) { return ::log(x); }
HALFGRAD_MATH double log1p(double x) { return ::log1p(x); }
HALFGRAD_MATH double sin(double x) { return ::sin(x); }
HALFGRAD_MATH double cos(double x) { return ::cos(x); }
HALFGRAD_MATH double erf(double x) { return ::erf(x); }
HALFGRAD_MATH double erfc(double x) { return ::erfc(x); }
HALFGRAD_MATH double pow(double x, double y) { return ::pow(x, y); }

/// A library's powf may be wrong by several units in the last place; its pow, rounded, is not.
HALFGRAD_MATH float pow(float x, float y) {
  return static_cast<float>(pow(static_cast<double>(x), static_cast<double>(y)));
}

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::math

#undef HALFGRAD_MATH
