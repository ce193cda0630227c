#pragma once
// A vector of floats that can stand for the T of an elementwise op (engine/ops/elementwise_ops.h). It is a class, not
// the vector type itself, so that exp(x), where(c, a, b) and the rest in an op mean the functions below: the compiler
// finds them because they are in the namespace of their argument's class.

#include "engine/cpu/kernels/math.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

/// All bits of a lane are 1 where a comparison holds, else 0.
struct Mask {
  vint bits;
  HALFGRAD_INLINE friend Mask operator&&(Mask a, Mask b) { return {a.bits & b.bits}; }
  HALFGRAD_INLINE friend Mask operator||(Mask a, Mask b) { return {a.bits | b.bits}; }
  HALFGRAD_INLINE friend Mask operator!=(Mask a, Mask b) { return {a.bits ^ b.bits}; }
};

struct Floats {
  vfloat lanes;

  HALFGRAD_INLINE Floats(vfloat v) : lanes(v) {}
  HALFGRAD_INLINE Floats(double x) : lanes(broadcast(static_cast<float>(x))) {}

  HALFGRAD_INLINE friend Floats operator-(Floats a) { return -a.lanes; }
  HALFGRAD_INLINE friend Floats operator+(Floats a, Floats b) { return a.lanes + b.lanes; }
  HALFGRAD_INLINE friend Floats operator-(Floats a, Floats b) { return a.lanes - b.lanes; }
  HALFGRAD_INLINE friend Floats operator*(Floats a, Floats b) { return a.lanes * b.lanes; }
  HALFGRAD_INLINE friend Floats operator/(Floats a, Floats b) { return a.lanes / b.lanes; }
  HALFGRAD_INLINE friend Mask operator==(Floats a, Floats b) { return {a.lanes == b.lanes}; }
  HALFGRAD_INLINE friend Mask operator!=(Floats a, Floats b) { return {a.lanes != b.lanes}; }
  HALFGRAD_INLINE friend Mask operator<(Floats a, Floats b) { return {a.lanes < b.lanes}; }
  HALFGRAD_INLINE friend Mask operator<=(Floats a, Floats b) { return {a.lanes <= b.lanes}; }
  HALFGRAD_INLINE friend Mask operator>(Floats a, Floats b) { return {a.lanes > b.lanes}; }
  HALFGRAD_INLINE friend Mask operator>=(Floats a, Floats b) { return {a.lanes >= b.lanes}; }
};

HALFGRAD_INLINE Floats where(Mask condition, Floats a, Floats b) { return condition.bits ? a.lanes : b.lanes; }
HALFGRAD_INLINE Floats zeros_like(Floats) { return vfloat{}; }

HALFGRAD_INLINE Floats abs(Floats x) { return abs(x.lanes); }
HALFGRAD_INLINE Floats floor(Floats x) { return floor(x.lanes); }
HALFGRAD_INLINE Floats ceil(Floats x) { return ceil(x.lanes); }
HALFGRAD_INLINE Floats nearbyint(Floats x) { return nearbyint(x.lanes); }
HALFGRAD_INLINE Floats sqrt(Floats x) { return sqrt(x.lanes); }
HALFGRAD_INLINE Floats exp(Floats x) { return exp(x.lanes); }
HALFGRAD_INLINE Floats expm1(Floats x) { return expm1(x.lanes); }
HALFGRAD_INLINE Floats log(Floats x) { return log(x.lanes); }
HALFGRAD_INLINE Floats log1p(Floats x) { return log1p(x.lanes); }
HALFGRAD_INLINE Floats sin(Floats x) { return sin(x.lanes); }
HALFGRAD_INLINE Floats cos(Floats x) { return cos(x.lanes); }
HALFGRAD_INLINE Floats tanh(Floats x) { return tanh(x.lanes); }
HALFGRAD_INLINE Floats erf(Floats x) { return erf(x.lanes); }
HALFGRAD_INLINE Floats erfc(Floats x) { return erfc(x.lanes); }
/// The one function that is computed lane by lane: its error would need more digits than a float has.
inline Floats pow(Floats x, Floats y) {
  for (int i = 0; i < kLanes; ++i) x.lanes[i] = __builtin_powf(x.lanes[i], y.lanes[i]);
  return x;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
