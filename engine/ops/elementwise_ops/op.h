#pragma once
// What the structs of elementwise ops are written with: see ../elementwise_ops.h.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "engine/math.h"

namespace halfgrad {

class Tensor;

namespace elementwise {
inline namespace HALFGRAD_ISA {

enum class Types { numbers, floats, predicate };
enum class Uses { nothing, input, output };

// A constant next to a T: a float next to a float, so that nothing is computed in double by accident; a double next to
// a Tensor, where it takes part as a number without a dtype.
template <class T>
constexpr auto constant(double v) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return v;
  } else if constexpr (std::is_integral_v<T>) {  // saturate: the bounds of clamp may be infinite
    constexpr double limit = 9223372036854775807.0;
    if (v >= limit) return std::numeric_limits<T>::max();
    return v <= -limit ? std::numeric_limits<T>::min() : static_cast<T>(v);
  } else {
    return static_cast<T>(v);
  }
}

// The functions of floats, vectors of floats and doubles. These and the next have namesakes for Tensors, which are found by
// argument-dependent lookup when T = Tensor.
using math::cos;
using math::erf;
using math::erfc;
using math::exp;
using math::expm1;
using math::log;
using math::log1p;
using math::pow;
using math::sin;
using math::tanh;
using math::where;
template <class T>
constexpr T zeros_like(const T&) {
  return T(0);
}

template <class T>
constexpr T integer_power(T base, T exponent) {  // exponent < 0: the truncated quotient 1 / base^-exponent
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  T result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result = static_cast<T>(static_cast<std::uint64_t>(result) * static_cast<std::uint64_t>(base));
    base = static_cast<T>(static_cast<std::uint64_t>(base) * static_cast<std::uint64_t>(base));
  }
  return result;
}

// A float as an integer: towards zero, saturating, NaN as 0.
template <class D, class T>
constexpr D truncated(T x) {
  if (!(x == x)) return 0;
  constexpr D lowest = std::numeric_limits<D>::min(), highest = std::numeric_limits<D>::max();
  if (x >= static_cast<T>(highest)) return highest;
  return x <= static_cast<T>(lowest) ? lowest : static_cast<D>(x);
}

inline constexpr double kSqrtHalf = 0.70710678118654752440;       // sqrt(1/2)
inline constexpr double kTwoOverSqrtPi = 1.12837916709551257390;  // 2 / sqrt(pi)
inline constexpr double kInvSqrtTwoPi = 0.39894228040143267794;   // 1 / sqrt(2 pi)

template <class... Ops>
struct List {
  static constexpr int size = sizeof...(Ops);
  template <class Op>
  static constexpr int position() {
    int at = 0, found = -1;
    ((found = std::is_same_v<Op, Ops> ? at : found, ++at), ...);
    return found;
  }
};

}  // namespace HALFGRAD_ISA
}  // namespace elementwise
}  // namespace halfgrad
