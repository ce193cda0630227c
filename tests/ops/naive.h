#pragma once
// What the tests of reductions, softmax and normalisation share: made-up tensors in several memory layouts,
// the elements that belong to one output, and gradients by finite differences.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/tensor.h"

namespace halfgrad::test {

/// Pseudo-random values in [low, high), the same on every machine.
inline Tensor made_up(const Shape& shape, DType dtype = f64, double low = -2, double high = 2, std::uint64_t seed = 1) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = low + (high - low) * static_cast<double>(state >> 40) / double(1 << 24);
  }
  return from_vector(values, shape).to(dtype);
}

/// x in other memory layouts: dimensions in reverse order, every second element of something larger,
/// channels-last.
inline Tensors layouts(const Tensor& x) {
  Tensors all = {x};
  if (x.rank() == 0) return all;
  Shape reverse, twice = x.shape();
  for (std::int64_t d = x.rank(); d-- > 0;) reverse.push_back(d);
  twice[twice.size() - 1] *= 2;
  all.push_back(x.permute(reverse).contiguous().permute(reverse));
  Tensor sparse = full(twice, 77, x.dtype()).slice(-1, 0, INT64_MAX, 2);
  sparse.copy_(x);
  all.push_back(sparse);
  if (x.rank() == 4) all.push_back(x.channels_last());
  return all;
}

/// The elements that are reduced to each output, outputs and elements in row-major order.
inline std::vector<std::vector<double>> groups(const Tensor& x, const Shape& dims) {
  const Shape kept = reduced_shape(x.shape(), normalize_dims(dims, x.rank(), "groups"), true);
  const Strides out = broadcast_strides(kept, contiguous_strides(kept), x.shape());
  std::vector<std::vector<double>> all(static_cast<std::size_t>(kept.numel()));
  const std::vector<double> values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), at = 0;
    for (std::size_t d = x.shape().size(); d-- > 0; rest /= x.shape()[d])
      at += rest % x.shape()[d] * (x.shape()[d] == kept[d] ? out[d] : 0);
    all[static_cast<std::size_t>(at)].push_back(values[i]);
  }
  return all;
}

/// |a - b| <= tolerance, or both NaN, or the same infinity.
inline bool close(double a, double b, double tolerance) {
  return (std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= tolerance;
}

inline void check_close(const Tensor& y, const std::vector<double>& expected, double relative, double absolute = 0) {
  const std::vector<double> values = y.to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CAPTURE(values[i]);
    CAPTURE(expected[i]);
    CHECK(close(values[i], expected[i], relative * std::abs(expected[i]) + absolute));
  }
}

/// Half a unit in the last place of an f16 next to x: what one rounding may cost.
inline double half_ulp(double x) {
  const int exponent = std::max(std::ilogb(std::abs(x) + 1e-30), -14);
  return std::ldexp(0.5, exponent - 10);
}

/// Compares the gradients of f, at f64 inputs, with central differences. f's output is weighted by made-up
/// numbers first.
inline void check_gradient(const std::function<Tensor(const Tensors&)>& f, const Tensors& at, double tolerance = 1e-6) {
  Tensors inputs;
  for (const Tensor& x : at) inputs.push_back(x.clone().requires_grad_());
  const Tensor y = f(inputs);
  const Tensor weights = made_up(y.shape(), f64, 0.5, 1.5, 9);
  const Tensors gradients = grad(y, inputs, weights, true);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    // Undefined: y does not depend on the input, as the gradient of a sum does not depend on what was summed.
    const Tensor gradient = gradients[k].defined() ? gradients[k] : zeros_like(at[k]);
    REQUIRE(gradient.shape() == at[k].shape());
    const std::vector<double> analytic = gradient.to_vector<double>();
    for (std::size_t i = 0; i < analytic.size(); ++i) {
      const double step = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        std::vector<double> values = at[k].to_vector<double>();
        values[i] += side ? step : -step;
        Tensors moved;
        for (const Tensor& x : at) moved.push_back(x.clone());
        moved[k].copy_(from_vector(values, at[k].shape()));
        for (Tensor& x : moved) x.requires_grad_();
        loss[side] = sum(f(moved) * weights).item();
      }
      const double numeric = (loss[1] - loss[0]) / (2 * step);
      CAPTURE(k);
      CAPTURE(i);
      CAPTURE(analytic[i]);
      CAPTURE(numeric);
      CHECK(std::abs(analytic[i] - numeric) <= tolerance * (1 + std::abs(numeric)));
    }
  }
}

/// The same for the gradient of the gradient.
inline void check_second_gradient(const std::function<Tensor(const Tensors&)>& f, const Tensors& at,
                                  double tolerance = 1e-6) {
  for (std::size_t k = 0; k < at.size(); ++k)
    check_gradient(
        [&](const Tensors& inputs) {
          const Tensor y = f(inputs);
          const Tensor weights = made_up(y.shape(), f64, 0.5, 1.5, 5).requires_grad_();
          return grad(y, {inputs[k]}, weights, true, true)[0];
        },
        at, tolerance);
}

}  // namespace halfgrad::test
