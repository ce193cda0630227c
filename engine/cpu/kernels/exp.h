#pragma once
// e^x for a vector of floats, within 1.5 ulp; subnormal results are kept, NaN stays NaN.

#include "engine/cpu/simd.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

HALFGRAD_INLINE vfloat exp(vfloat x) {
  // e^x = 2^k * e^r with r = x - k ln 2 in [-ln 2 / 2, ln 2 / 2]. Beyond the limits the result is 0 or
  // infinity.
  const vfloat bounded = x > 89.0F ? broadcast(89.0F) : x < -104.0F ? broadcast(-104.0F) : x;
  // Adding 1.5 * 2^23 rounds to an integer, which then is in the low bits. ln 2 in two parts: k times the
  // first is exact.
  const vfloat shifted = bounded * 1.44269504F + 0x1.8p23F;
  const vfloat k = shifted - 0x1.8p23F;
  const vfloat r = fma(k, broadcast(2.12194440e-4F), fma(k, broadcast(-0.693359375F), bounded));
  // The polynomial is that of Cephes' expf (Moshier, 1992).
  vfloat p = broadcast(1.9875691500e-4F);
  p = fma(p, r, broadcast(1.3981999507e-3F));
  p = fma(p, r, broadcast(8.3334519073e-3F));
  p = fma(p, r, broadcast(4.1665795894e-2F));
  p = fma(p, r, broadcast(1.6666665459e-1F));
  p = fma(p, r, broadcast(5.0000001201e-1F));
  const vfloat y = fma(p, r * r, r) + 1.0F;
  // 2^k in two factors, since k may be outside of the exponents of normal numbers.
  const vint exponent = (vint)shifted - 0x4B400000;  // k, an integer
  const vint half = exponent >> 1;
  const vfloat scaled = y * (vfloat)((half + 127) << 23) * (vfloat)((exponent - half + 127) << 23);
  return x != x ? x : scaled;
}
HALFGRAD_INLINE double exp(double x) { return __builtin_exp(x); }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
