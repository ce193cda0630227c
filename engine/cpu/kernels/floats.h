#pragma once
// A vector of floats that can stand for the T of an elementwise op (engine/ops/elementwise_ops.h). It is a class, not
// the vector type itself, so that exp(x), where(c, a, b) and the rest in an op mean the functions below: the compiler
// finds them because they are in the namespace of their argument's class.

#include "engine/cpu/simd.h"
#include "engine/math.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

/// All bits of a lane are 1 where a comparison holds, else 0.
struct Mask {
  vint bits;

  HALFGRAD_INLINE Mask(vint b) : bits(b) {}
  HALFGRAD_INLINE friend Mask operator&&(Mask a, Mask b) { return a.bits & b.bits; }
  HALFGRAD_INLINE friend Mask operator||(Mask a, Mask b) { return a.bits | b.bits; }
  HALFGRAD_INLINE friend Mask operator!=(Mask a, Mask b) { return a.bits ^ b.bits; }
};

struct Floats {
  using Bits = vuint;
  vfloat lanes;

  HALFGRAD_INLINE Floats(vfloat v) : lanes(v) {}
  HALFGRAD_INLINE Floats(double x) : lanes(broadcast(static_cast<float>(x))) {}

  HALFGRAD_INLINE friend Floats operator-(Floats a) { return -a.lanes; }
  HALFGRAD_INLINE friend Floats operator+(Floats a, Floats b) { return a.lanes + b.lanes; }
  HALFGRAD_INLINE friend Floats operator-(Floats a, Floats b) { return a.lanes - b.lanes; }
  HALFGRAD_INLINE friend Floats operator*(Floats a, Floats b) { return a.lanes * b.lanes; }
  HALFGRAD_INLINE friend Floats operator/(Floats a, Floats b) { return a.lanes / b.lanes; }
  HALFGRAD_INLINE friend Mask operator==(Floats a, Floats b) { return a.lanes == b.lanes; }
  HALFGRAD_INLINE friend Mask operator!=(Floats a, Floats b) { return a.lanes != b.lanes; }
  HALFGRAD_INLINE friend Mask operator<(Floats a, Floats b) { return a.lanes < b.lanes; }
  HALFGRAD_INLINE friend Mask operator<=(Floats a, Floats b) { return a.lanes <= b.lanes; }
  HALFGRAD_INLINE friend Mask operator>(Floats a, Floats b) { return a.lanes > b.lanes; }
  HALFGRAD_INLINE friend Mask operator>=(Floats a, Floats b) { return a.lanes >= b.lanes; }
};

HALFGRAD_INLINE Floats where(Mask condition, Floats a, Floats b) { return condition.bits ? a.lanes : b.lanes; }
HALFGRAD_INLINE Floats zeros_like(Floats) { return vfloat{}; }

// --- what engine/math.h writes with T, found there because T is Floats -----------------------------------------------

HALFGRAD_INLINE Floats at_most(Floats x, float bound) { return at_most(x.lanes, bound); }
HALFGRAD_INLINE Floats at_least(Floats x, float bound) { return at_least(x.lanes, bound); }
#if defined(__AVX512F__)
HALFGRAD_INLINE Floats scale(Floats x, Floats k) { return scale(x.lanes, k.lanes); }
#endif
HALFGRAD_INLINE Floats product_minus(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__) || defined(HALFGRAD_AVX2)
  return fma(a.lanes, b.lanes, -c.lanes);
#else  // Dekker's product: a and b in halves of 12 bits, whose products are exact, as are these sums
  const auto high = [](Floats x) HALFGRAD_LAMBDA { return math::from_bits<Floats>(math::bits(x) & ~0xFFFU); };
  const Floats product = a * b, p = high(a), q = a - p, r = high(b), s = b - r;
  return (product - c) + (((p * r - product) + p * s + q * r) + q * s);
#endif
}
template <class F>
HALFGRAD_INLINE Floats with_large_angles(Floats y, Floats x, F f) {
  const vint large = (math::abs(x) > math::kLargestAngle).bits;
  if (any(large))
    for (int i = 0; i < kLanes; ++i)
      if (large[i]) y.lanes[i] = f(x.lanes[i]);
  return y;
}

// --- exact functions, for which an instruction would do, but not every machine has it --------------------------------

HALFGRAD_INLINE Floats abs(Floats x) { return math::abs(x); }
HALFGRAD_INLINE Floats sqrt(Floats x) { return sqrt(x.lanes); }
/// To a whole number, ties to even.
HALFGRAD_INLINE Floats nearbyint(Floats x) {
  const Floats whole = math::copysign((abs(x) + 0x1p23F) - 0x1p23F, x);
  return where(abs(x) < 0x1p23F, whole, x);  // from 2^23 on all floats are whole numbers
}
HALFGRAD_INLINE Floats floor(Floats x) {
  const Floats whole = nearbyint(x);
  return where(whole > x, whole - 1.0F, whole);
}
HALFGRAD_INLINE Floats ceil(Floats x) {
  const Floats whole = nearbyint(x);
  return math::copysign(where(whole < x, whole + 1.0F, whole), x);  // -0.5 becomes -0
}

/// The one function that is computed lane by lane: its error would need more digits than a float has.
inline Floats pow(Floats x, Floats y) {
  for (int i = 0; i < kLanes; ++i) x.lanes[i] = __builtin_powf(x.lanes[i], y.lanes[i]);
  return x;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
