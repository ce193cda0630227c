#pragma once
// The functions of engine/math.h, and those of whole numbers in engine/cpu/kernels/floats.h, for tests: how each is called,
// what it must give, and how far it may be from that.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/cpu/kernels.h"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::testing {

struct MathFunction {
  std::string name;
  int op;                   // its position in UnaryOps
  double (*exact)(double);  // exact beside a float: the C library's errors are 2^-29 of that of a float
  double ulps;              // the bound that math.h states
};

template <class Op>
constexpr int position_of() {
  return elementwise::UnaryOps::position<Op>();
}

inline double exact_gelu(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

inline const std::vector<MathFunction> kMathFunctions = {
    {"exp", position_of<elementwise::Exp>(), std::exp, 1.0},
    {"expm1", position_of<elementwise::Expm1>(), std::expm1, 1.7},
    {"log", position_of<elementwise::Log>(), std::log, 1.0},
    {"log1p", position_of<elementwise::Log1p>(), std::log1p, 1.7},
    {"sin", position_of<elementwise::Sin>(), std::sin, 1.1},
    {"cos", position_of<elementwise::Cos>(), std::cos, 1.1},
    {"tanh", position_of<elementwise::Tanh>(), std::tanh, 1.4},
    {"erf", position_of<elementwise::Erf>(), std::erf, 1.1},
    {"erfc", position_of<elementwise::Erfc>(), std::erfc, 1.9},
    {"gelu", position_of<elementwise::Gelu>(), exact_gelu, 2.0},
    {"floor", position_of<elementwise::Floor>(), std::floor, 0},
    {"ceil", position_of<elementwise::Ceil>(), std::ceil, 0},
    {"round", position_of<elementwise::Round>(), std::nearbyint, 0},
};

/// y[i] = f(x[i]) by these kernels.
inline void evaluate(const cpu::Kernels& kernels, const MathFunction& f, const float* x, float* y, std::int64_t n) {
  kernels.elementwise.unary[f.op][cpu::compute_f32](nullptr, {1, n}, {y, n}, {const_cast<float*>(x), n});
}

/// How far y is from `exact` in units in the last place of a float; infinity when an infinity, a NaN or the sign of a
/// zero is wrong.
inline double error_in_ulps(float y, double exact) {
  if (std::isnan(exact) || std::isnan(y)) return std::isnan(exact) && std::isnan(y) ? 0 : INFINITY;
  if (std::isinf(exact) || exact == 0) return y == exact && std::signbit(y) == std::signbit(exact) ? 0 : INFINITY;
  // Beyond the largest float as if the next one were 2^128.
  const double value = std::isinf(y) ? std::copysign(0x1p128, y) : y;
  const int exponent = std::min(std::max(std::ilogb(exact), -126), 127);
  if (std::abs(exact) >= 0x1p128 && std::isinf(y)) return std::signbit(y) == std::signbit(exact) ? 0 : INFINITY;
  return std::abs(value - exact) / std::ldexp(1, exponent - 23);
}

}  // namespace halfgrad::testing
