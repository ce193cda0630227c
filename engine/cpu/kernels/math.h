#pragma once
// The functions of <cmath> for a vector of floats.
//
// All of them are written with IEEE additions, multiplications and divisions alone, without fused multiply-adds, so
// that every instruction set computes the same bits. NaN gives NaN, and infinities, zeros of both signs and subnormal
// numbers give what the C library gives. How far they may be from the exact result was found over all floats
// (tests/slow/test_math_all_floats.cpp): in units in the last place it is at most
//
//     exp 1   expm1 1.7   log 1   log1p 1.7   sin, cos 1.1   tanh 1.4   erf 1.4   erfc 4.3
//
// The pattern is always the same: the argument is brought into a small interval, where a polynomial is as good as
// exact, and the result is put together from that. The coefficients are minimax fits (the algorithm of Remez) of the
// relative error.

#include "engine/cpu/simd.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

// --- bits ------------------------------------------------------------------------------------------------------------

HALFGRAD_INLINE vfloat abs(vfloat x) { return (vfloat)((vint)x & 0x7FFFFFFF); }
/// The magnitude of x with the sign of `sign`.
HALFGRAD_INLINE vfloat copysign(vfloat x, vfloat sign) {
  const vint mask = vint{} + 0x7FFFFFFF;
  return (vfloat)(((vint)x & mask) | ((vint)sign & ~mask));
}
/// 2^k for -127 < k < 128.
HALFGRAD_INLINE vfloat power_of_two(vint k) { return (vfloat)((k + 127) << 23); }
/// A polynomial in x, its coefficients from the constant on.
template <class... C>
HALFGRAD_INLINE vfloat polynomial(vfloat x, float first, C... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return broadcast(first);
  } else {
    return polynomial(x, rest...) * x + first;
  }
}

// --- to whole numbers ------------------------------------------------------------------------------------------------

/// To nearest, ties to even, for |x| < 2^22: the sum with 1.5 * 2^23 has no bits for a fraction.
HALFGRAD_INLINE vfloat nearest(vfloat x) { return x + 0x1.8p23F - 0x1.8p23F; }
/// For any x.
HALFGRAD_INLINE vfloat nearbyint(vfloat x) {
  const vfloat whole = copysign((abs(x) + 0x1p23F) - 0x1p23F, x);
  return abs(x) < 0x1p23F ? whole : x;  // from 2^23 on all floats are whole numbers
}
HALFGRAD_INLINE vfloat floor(vfloat x) {
  const vfloat whole = nearbyint(x);
  return whole > x ? whole - 1.0F : whole;
}
HALFGRAD_INLINE vfloat ceil(vfloat x) {
  const vfloat whole = nearbyint(x);
  return copysign(whole < x ? whole + 1.0F : whole, x);  // -0.5 becomes -0
}

// --- exponentials ----------------------------------------------------------------------------------------------------

/// x = k ln 2 + r + low with |r| <= ln 2 / 2, for |x| < 2^14; low is what r lost when it was rounded.
struct ExpRange {
  vfloat k, r, low;
};
HALFGRAD_INLINE ExpRange exp_range(vfloat x) {
  // ln 2 in two parts: the first has so few bits that k times it is exact.
  const vfloat k = nearest(x * 1.44269504F), high = x - k * 0.693359375F, correction = k * -2.12194440e-4F;
  const vfloat r = high - correction;
  return {k, r, (high - r) - correction};
}
/// e^r = 1 + r + r^2 * this
HALFGRAD_INLINE vfloat exp_polynomial(vfloat r) {
  return polynomial(r, 0.4999999404F, 0.1666651517F, 0.04166807979F, 0.008369368501F, 0.001384145464F);
}

/// Beyond -104 and 89 e^x is 0 or infinity.
HALFGRAD_INLINE vfloat exp(vfloat x) {
  const ExpRange range = exp_range(at_least(at_most(x, 89.0F), -104.0F));
  const vfloat r = range.r;
  return scale(1.0F + (r + r * r * exp_polynomial(r)), range.k);
}
/// e^(x + rest), for x <= 0 and |rest| < 0.05.
HALFGRAD_INLINE vfloat exp(vfloat x, vfloat rest) {
  const ExpRange range = exp_range(at_least(x, -104.0F));
  const vfloat r = range.r + rest, low = range.low + ((range.r - r) + rest);
  return scale(1.0F + (r + (r * r * exp_polynomial(r) + low)), range.k);
}

/// e^x - 1, exact near 0.
HALFGRAD_INLINE vfloat expm1(vfloat x) {
  const ExpRange range = exp_range(at_least(at_most(x, 89.0F), -18.0F));
  const vfloat r = range.r, q = r + (r * r * exp_polynomial(r) + range.low);
  // 2^k (1 + q) - 1 = 2^k (q + (1 - 2^-k)), where the inner bracket is exact for the k that matter
  const vfloat y = scale(q + (1.0F - power_of_two(__builtin_convertvector(-at_most(range.k, 126.0F), vint))), range.k);
  return x == 0.0F ? x : y;  // keeps -0
}

HALFGRAD_INLINE vfloat tanh(vfloat x) {
  const vfloat a = abs(x), square = a * a;
  const vfloat p = polynomial(square, -0.3333328068F, 0.1333140582F, -0.05373651534F, 0.02062816545F, -0.005692290608F);
  const vfloat small = a + a * (square * p);
  const vfloat large = 1.0F - 2.0F / (exp(a + a) + 1.0F);
  return copysign(a < 0.625F ? small : large, x);
}

// --- logarithms ------------------------------------------------------------------------------------------------------

/// x = 2^e * m with m in [2/3, 4/3), for positive normal numbers.
HALFGRAD_INLINE vfloat log_range(vfloat x, vint& e) {
  // Unsigned, because for other numbers, whose result nobody uses, it may wrap around.
  e = (vint)((vuint)x - 0x3F2AAAABU) >> 23;  // what lies above the bits of 2/3 in the exponent field
  return (vfloat)((vuint)x - ((vuint)e << 23));
}
/// log(2^e * (1 + f)) for 1 + f in [2/3, 4/3)
HALFGRAD_INLINE vfloat log_of_parts(vfloat f, vint e) {
  const vfloat square = f * f;
  const vfloat p = polynomial(f, 0.333332151F, -0.249997973F, 0.200104058F, -0.16680488F, 0.140058711F, -0.121842481F,
                              0.139844313F, -0.128917381F);
  const vfloat exponent = __builtin_convertvector(e, vfloat);
  // ln 2 in two parts: e times the first is exact.
  const vfloat tail = f * square * p - 0.5F * square + exponent * -2.12194440e-4F;
  return f + tail + exponent * 0.693359375F;
}
/// y = log(x) for the numbers that have one, else what IEEE wants.
HALFGRAD_INLINE vfloat log_or_special(vfloat y, vfloat x) {
  y = x == 0.0F ? broadcast(-__builtin_inff()) : y;
  return x < 0.0F ? broadcast(__builtin_nanf("")) : y;
}

HALFGRAD_INLINE vfloat log(vfloat x) {
  const vint subnormal = x < 0x1p-126F;
  vint e;
  const vfloat m = log_range(subnormal ? x * 0x1p23F : x, e);
  const vfloat y = log_of_parts(m - 1.0F, e - (subnormal & 23));
  return x < __builtin_inff() ? log_or_special(y, x) : x;
}

/// log(1 + x), exact near 0.
HALFGRAD_INLINE vfloat log1p(vfloat x) {
  const vfloat sum = 1.0F + x;
  const vfloat rest = x < 1.0F ? x - (sum - 1.0F) : 1.0F - (sum - x);  // what the addition lost
  vint e;
  const vfloat m = log_range(sum, e);
  const vint near = e > 100 ? vint{} + 100 : e;  // the rest of larger sums has no influence
  const vfloat y = log_of_parts((m - 1.0F) + rest * power_of_two(-near), e);
  const vint usual = (x < __builtin_inff()) & (x != 0.0F);  // else infinity, NaN, or 0 with its sign
  return usual ? log_or_special(y, sum) : x;
}

// --- sine and cosine -------------------------------------------------------------------------------------------------

/// sin(x + quarters * pi/2) for |x| up to kLargestAngle.
inline constexpr float kLargestAngle = 8192;
HALFGRAD_INLINE vfloat sine_of_turned(vfloat x, int quarters) {
  // x = n pi/2 + r + low with |r| <= pi/4. pi/2 in four parts: n times the first three is exact.
  const vfloat n = nearest(x * 0.636619772F);
  const vfloat high = (x - n * 0x1.92p0F) - n * 0x1.fb4p-12F, correction = n * 0x1.444p-24F;
  const vfloat r = high - correction;
  const vfloat low = ((high - r) - correction) - n * 0x1.68c234p-39F;
  const vfloat square = r * r;
  const vfloat sine_rest = r * square * polynomial(square, -0.1666665524F, 0.00833218731F, -0.0001951789745F);
  const vfloat cosine_rest =
      square * square * polynomial(square, 0.04166664556F, -0.001388730947F, 2.443232734e-5F) - r * low;
  const vfloat sine = r + (sine_rest + low), cosine = 1.0F - (0.5F * square - cosine_rest);
  const vint turns = __builtin_convertvector(n, vint) + quarters;
  const vfloat y = (turns & 1) == 0 ? sine : cosine;
  return (vfloat)((vint)y ^ (turns & 2) << 30);
}

/// y with what `f` gives in the lanes where |x| is large: there are few of them, and many digits of pi are needed.
template <class F>
HALFGRAD_INLINE vfloat with_large_angles(vfloat y, vfloat x, F f) {
  const vint large = abs(x) > kLargestAngle;
  if (any(large))
    for (int i = 0; i < kLanes; ++i)
      if (large[i]) y[i] = f(x[i]);
  return y;
}
HALFGRAD_INLINE vfloat sin(vfloat x) {
  const vint sign = (vint)x & ~0x7FFFFFFF;
  const vfloat y = (vfloat)((vint)sine_of_turned(abs(x), 0) ^ sign);  // keeps -0
  return with_large_angles(y, x, [](float v) HALFGRAD_LAMBDA { return __builtin_sinf(v); });
}
HALFGRAD_INLINE vfloat cos(vfloat x) {
  return with_large_angles(sine_of_turned(x, 1), x, [](float v) HALFGRAD_LAMBDA { return __builtin_cosf(v); });
}

// --- the error function ----------------------------------------------------------------------------------------------

/// erf(x) for |x| <= 1.
HALFGRAD_INLINE vfloat small_erf(vfloat x) {
  const vfloat p = polynomial(x * x, 0.1283791661F, -0.3761262596F, 0.1128357872F, -0.0268533472F, 0.005187162198F,
                              -0.0007997853099F, 7.806903159e-5F);
  return x + x * p;
}
/// 1 - erf(x) for x >= 0.5.
HALFGRAD_INLINE vfloat large_erfc(vfloat x) {
  x = at_most(x, 11.0F);
  // (1 + x) e^(x^2) erfc(x) lies between 0.56 and 1.1, and is a polynomial in q up to 10.1, from where on erfc is 0.
  const vfloat q = (x - 2.0F) / (x + 2.0F);
  const vfloat p = polynomial(q, 0.766187012F, -0.259974778F, 0.0378137417F, 0.0425341241F, -0.0252400208F,
                              -0.00049535837F, 0.00390925165F, 5.37929045e-5F, -0.00061075011F) /
                   (x + 1.0F);
  // An error of x^2 would be multiplied by x^2: its square is exact for a number of 12 bits, the rest goes apart.
  const vfloat high = (vfloat)(((vuint)x + 2048U) & ~0xFFFU);
  return p * exp(-high * high, (high - x) * (high + x));
}
HALFGRAD_INLINE vfloat erf(vfloat x) {
  const vfloat a = abs(x);
  return copysign(a < 1.0F ? small_erf(a) : 1.0F - large_erfc(a), x);
}
/// 1 - erf(x)
HALFGRAD_INLINE vfloat erfc(vfloat x) {
  const vfloat a = abs(x), large = large_erfc(a);
  return a < 0.5F ? 1.0F - small_erf(x) : x < 0.0F ? 2.0F - large : large;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
