#pragma once
// Elementwise ops on tensors. The math of each, with its gradient, is a struct in elementwise_ops.h.
//
// Operands broadcast as in NumPy and mix dtypes as promote() says; a number and a rank-0 tensor do not widen the other
// operand within its kind. f16 is computed in f32 and rounded once.

#include "engine/tensor.h"

namespace halfgrad {

// --- one operand; integers become f32 in those that need fractions ---
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// To the nearest integer, ties to even.
Tensor round(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x * Phi(x) with the exact normal distribution function.
Tensor gelu(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor elu(const Tensor& x, double alpha = 1);
Tensor softplus(const Tensor& x, double beta = 1);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);
/// Limits to [min, max]; either may be infinite.
Tensor clamp(const Tensor& x, double min, double max);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

// --- two operands ---
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// True division: integers give f32.
Tensor div(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& base, const Tensor& exponent);
/// NaN wins. On a tie both operands get half of the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);

/// condition ? a : b, elementwise; condition is bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

/// x converted to dtype with one rounding; x itself when it has that dtype. The gradient is converted back.
Tensor cast(const Tensor& x, DType dtype);

inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator!(const Tensor& x) { return logical_not(x); }

namespace detail {
// x op= other, rounded once to x's dtype; the members of Tensor call these.
void add_in_place(Tensor& x, const Tensor& other, double alpha);
void multiply_in_place(Tensor& x, const Tensor& other);
void divide_in_place(Tensor& x, const Tensor& other);
/// The gradient of relu from that of its result y.
Tensor relu_gradient(const Tensor& dy, const Tensor& y);
}  // namespace detail

}  // namespace halfgrad
