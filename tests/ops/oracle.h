#pragma once
// The oracle of every op: plain loops over numbers that know three things: their value in double, how far a
// careful computation in less precision may be from it, and how they were made. So one naive definition of an
// op gives what the result must be, what its gradients must be, and how large an error is to be accepted for
// both.
//
// --- the error bound (running error analysis: Higham, Accuracy and Stability of Numerical Algorithms,
// section 3.3) ---
//
// Let u be the unit roundoff of the arithmetic: 2^-53 in f64, 2^-24 in f32 and in f16, which is computed in
// f32. IEEE arithmetic rounds to nearest: fl(a op b) = (a op b)(1 + d), |d| <= u, or, where the result is
// subnormal, an error of at most half the smallest subnormal number. If a and b are only known up to errors
// ea and eb, then to first order
//
//     a + b     ea + eb                  + u |a + b|
//     a * b     |a| eb + |b| ea          + u |a * b|
//     a / b     ea / |b| + |a| eb / b^2  + u |a / b|
//     f(a)      |f'(a)| ea               + 2 k u |f(a)|     a library function, wrong by k units in the last
//     place
//
// Nothing is said about the order in which n numbers are summed: whichever it is, each of them goes through
// at most n - 1 additions, so that the error is at most (n - 1) u sum|a_i| on top of the sum of their own.
//
// The gradient is computed backwards over the same loops (reverse mode: each number knows its inputs and the
// derivatives by them), with the same rules for its errors.
//
// A result is stored in its dtype, rounded once. Rounding is monotone, so whatever was computed between v - e
// and v + e is stored as something between round(v - e) and round(v + e): that is the interval which a test
// accepts. With e = 0 it is the correctly rounded result and nothing else. In f16 most intervals hold one or
// two numbers.
//
// Some gradients are computed from what was stored: that of tanh from its output. In f16 that is wrong by
// 2^-11 of its value; so it is counted here, too (`kept`). And where a gradient is handed on in a tensor
// between two nodes of the graph, it is rounded to its dtype (`between_nodes`).

#include <cmath>
#include <functional>
#include <vector>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/tensor.h"

namespace halfgrad::oracle {

/// The roundings that are counted: of arithmetic, and of what is stored.
struct Precision {
  double unit = 0x1p-53;
  double storage = 0x1p-53;
  double tiny = 0x1p-1074;          // error of a subnormal result of arithmetic
  double tiny_storage = 0x1p-1074;  // ... and of a stored one
};
Precision precision_of(DType dtype);

/// A value and the bound of its error, without a history.
struct Approx {
  double value = 0;
  double error = 0;
};

/// A number on the tape.
struct Num : Approx {
  int node = -1;  // -1: a constant

  Num() = default;
  Num(double constant) : Approx{constant, 0} {}
  Num(Approx x, int at) : Approx(x), node(at) {}
};

/// Forgets all numbers, and counts roundings as in `precision` from now on.
void start(const Precision& precision);
/// An exact input.
Num input(double value);
/// A constant such as 0.1, which is rounded to the type of the arithmetic first.
Num rounded_constant(double value);
/// The gradients of sum of seeds[i] * outputs[i] with respect to `inputs`.
std::vector<Approx> backward(const std::vector<Num>& outputs, const std::vector<double>& seeds,
                             const std::vector<Num>& inputs);

Num operator-(const Num& a);
Num operator+(const Num& a, const Num& b);
Num operator-(const Num& a, const Num& b);
Num operator*(const Num& a, const Num& b);
Num operator/(const Num& a, const Num& b);
/// The sum in any order.
Num total(const std::vector<Num>& terms);
/// One of several equal numbers, which share its gradient.
Num one_of(const std::vector<Num>& equals);
/// The largest number (sign 1) or the smallest (-1); NaN wins, and equal ones share the gradient.
Num extremum(const std::vector<Num>& x, double sign);

Num exp(const Num& x);
Num expm1(const Num& x);
Num log(const Num& x);
Num log1p(const Num& x);
Num sqrt(const Num& x);
Num sin(const Num& x);
Num cos(const Num& x);
Num tanh(const Num& x);
Num erf(const Num& x);
Num erfc(const Num& x);
Num pow(const Num& a, const Num& b);
Num sigmoid(const Num& x);
Num reciprocal(const Num& x);
Num rsqrt(const Num& x);
Num abs(const Num& x);  // gradient 0 at 0

/// Of the numbers of a line. They subtract the largest first, which changes nothing but the range of what is
/// computed.
Num log_sum_exp(const std::vector<Num>& x);
std::vector<Num> softmax(const std::vector<Num>& x);
std::vector<Num> log_softmax(const std::vector<Num>& x);

/// x, whose gradient is handed on in a tensor: rounded to its dtype on the way back.
Num between_nodes(const Num& x);

/// A dense row-major array of numbers, which stands for a tensor of the given dtype.
struct Array {
  Shape shape;
  std::vector<Num> values;
  DType dtype = f64;

  Array() = default;
  Array(const Shape& s, DType t) : shape(s), values(static_cast<std::size_t>(s.numel())), dtype(t) {}
  Array(const Shape& s, DType t, std::vector<Num> v) : shape(s), values(std::move(v)), dtype(t) {}

  std::int64_t size(int dim) const { return shape[static_cast<std::size_t>(dim < 0 ? dim + shape.rank() : dim)]; }
  Num& operator[](const Shape& index) { return values[static_cast<std::size_t>(offset(index))]; }
  const Num& operator[](const Shape& index) const { return values[static_cast<std::size_t>(offset(index))]; }
  /// For an array of indices.
  std::int64_t integer(const Shape& index) const { return static_cast<std::int64_t>((*this)[index].value); }

 private:
  std::int64_t offset(const Shape& index) const;
};
using Arrays = std::vector<Array>;

/// 0 for what is not positive.
Array relu(Array y);
/// All indices of an array of this shape, in row-major order.
std::vector<Shape> indices(const Shape& shape);
/// `index` with another entry at dim.
Shape with(Shape index, std::size_t dim, std::int64_t value);

/// f of each element. The dtype stays unless another is given.
Array map(const Array& x, const std::function<Num(const Num&)>& f);
Array map(const Array& x, DType dtype, const std::function<Num(const Num&)>& f);
/// f of each pair of elements, broadcast; the dtype is the promoted one unless another is given.
Array zip(const Array& a, const Array& b, const std::function<Num(const Num&, const Num&)>& f);
Array zip(const Array& a, const Array& b, DType dtype, const std::function<Num(const Num&, const Num&)>& f);
/// x read as if it had the shape `target`.
Array broadcast(const Array& x, const Shape& target);
/// f of the elements along the dimensions `dims` (empty: all).
Array reduce(const Array& x, const Shape& dims, bool keepdim, DType dtype,
             const std::function<Num(const std::vector<Num>&)>& f);
/// f of each line along dim: as many elements out as in.
Array along(const Array& x, std::int64_t dim, const std::function<std::vector<Num>(const std::vector<Num>&)>& f);

}  // namespace halfgrad::oracle
