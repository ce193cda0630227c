#pragma once
// What the tests of matmul, conv, pool, index and join share: made-up tensors, their values in f64, an error
// bound for f16, and numerical gradients.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/tensor.h"

namespace halfgrad::reference {

/// Standard normal values, rounded to dtype.
inline Tensor random(const Shape& shape, DType dtype = f64, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = normal(generator);
  return from_vector(values, shape).to(dtype);
}

/// Integers in [0, limit), i64.
inline Tensor random_index(const Shape& shape, std::int64_t limit, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  for (auto& v : values) v = static_cast<std::int64_t>(generator()) % limit;
  return from_vector(values, shape);
}

/// The values of a tensor in row-major order with their shape.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(const Tensor& x) : shape(x.shape()), values(x.to_vector<double>()) {}
  Array(Shape s, double value) : shape(std::move(s)), values(static_cast<std::size_t>(shape.numel()), value) {}
  double& operator()(std::initializer_list<std::int64_t> at) { return values[position(at)]; }
  double operator()(std::initializer_list<std::int64_t> at) const { return values[position(at)]; }

 private:
  std::size_t position(std::initializer_list<std::int64_t> at) const {
    std::int64_t p = 0;
    std::size_t d = 0;
    for (std::int64_t i : at) p = p * shape[d++] + i;
    return static_cast<std::size_t>(p);
  }
};

/// Half of the distance between the neighbours of `value` in dtype: what one rounding may change.
inline double half_spacing(double value, DType dtype) {
  const int bits = dtype == f16 ? 11 : dtype == f32 ? 24 : 53;
  const int smallest = dtype == f16 ? -14 : dtype == f32 ? -126 : -1022;
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(1.0, exponent - bits);
}

/// How far the result may be from `exact`, a sum of `terms` numbers whose absolute values add up to
/// `magnitude`: summed in f32 (unit roundoff u = 2^-24) in any order it is wrong by at most (terms - 1) u
/// magnitude / (1 - terms u), and the products of halves are exact in f32. We allow `terms` u, twice, for
/// products of floats too. The result is the nearest number of dtype to that sum. f64 is summed in f64 with u
/// = 2^-53.
inline double sum_bound(double exact, double terms, double magnitude, DType dtype) {
  const double u = std::ldexp(1.0, dtype == f64 ? -53 : -24);
  const double sum_error = 2 * terms * u * magnitude;
  return sum_error + half_spacing(std::abs(exact) + sum_error, dtype);
}

/// Checks y against exact values, element by element, with the bound above.
inline void check_sums(const Tensor& y, const Array& exact, const Array& magnitude, double terms) {
  REQUIRE(y.shape() == exact.shape);
  const std::vector<double> got = y.to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = sum_bound(exact.values[i], terms, magnitude.values[i], y.dtype());
    if (!(std::abs(got[i] - exact.values[i]) <= bound))
      FAIL_CHECK("element " << i << " is " << got[i] << ", expected " << exact.values[i] << " within " << bound);
  }
}

inline void check_equal(const Tensor& y, const Tensor& expected) {
  CHECK(y.dtype() == expected.dtype());
  REQUIRE(y.shape() == expected.shape());
  CHECK(y.to_vector<double>() == expected.to_vector<double>());
}

/// The message of the Error that f throws, or "" when it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The sum of all elements of a*b, as a tensor that can be differentiated.
inline Tensor inner_product(const Tensor& a, const Tensor& b) { return sum_to_shape(a * b, {}); }

using Function = std::function<Tensor(const Tensors&)>;

/// Compares the gradients of <f(inputs), weights>, for made-up weights, with central differences. f64 inputs;
/// the ops tested here are (piecewise) polynomials of low degree, so that step 1e-4 leaves errors far below
/// 1e-6.
inline void check_gradients(const Function& f, const Tensors& values, double tolerance = 1e-6) {
  Tensors inputs;
  for (const Tensor& v : values) inputs.push_back(v.detach().clone().requires_grad_());
  const Tensor y = f(inputs);
  const Tensor weights = random(y.shape(), f64, 99);
  const Tensors gradients = grad(inner_product(y, weights), inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor gradient = gradients[i].defined() ? gradients[i] : zeros_like(inputs[i]);
    REQUIRE(gradient.shape() == inputs[i].shape());
    const std::vector<double> got = gradient.to_vector<double>(), at = inputs[i].to_vector<double>();
    for (std::size_t j = 0; j < got.size(); ++j) {
      const auto value_with = [&](double change) {
        std::vector<double> moved = at;
        moved[j] += change;
        Tensors changed = inputs;
        changed[i] = from_vector(moved, inputs[i].shape());
        return inner_product(f(changed), weights).item();
      };
      const double expected = (value_with(1e-4) - value_with(-1e-4)) / 2e-4;
      if (!(std::abs(got[j] - expected) <= tolerance * (1 + std::abs(expected))))
        FAIL_CHECK("gradient " << i << ", element " << j << " is " << got[j] << ", expected " << expected);
    }
  }
}

/// The same for each gradient of f, as a function of all inputs and of the gradient of its output: second
/// derivatives.
inline void check_second_gradients(const Function& f, const Tensors& values, double tolerance = 1e-6) {
  Tensors all = values;
  all.push_back(random(f(values).shape(), f64, 77));
  for (std::size_t which = 0; which < values.size(); ++which) {
    const Function gradient = [&](const Tensors& in) {
      Tensors x(in.begin(), in.end() - 1);
      if (!x[which].requires_grad()) x[which].requires_grad_();
      return grad(f(x), {x[which]}, in.back(), true, true)[0];
    };
    check_gradients(gradient, all, tolerance);
  }
}

}  // namespace halfgrad::reference
