#pragma once
// Elementwise ops of one operand, second part: the activations of neural networks.

#include "engine/ops/elementwise_ops/op.h"

namespace halfgrad::elementwise {
inline namespace HALFGRAD_ISA {

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return tanh(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return dy * (constant<T>(1) - y * y);
  }
};

// 1 / (1 + e^-x). Other ops use it too.
template <class T>
constexpr T logistic(const T& x) {
  return constant<T>(1) / (constant<T>(1) + exp(-x));
}

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return logistic(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return dy * (y * (constant<T>(1) - y));
  }
};

struct Relu {  // NaN stays NaN
  static constexpr const char* name = "relu";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return where(x < constant<T>(0), T(zeros_like(x)), x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return where(y > constant<T>(0), dy, T(zeros_like(dy)));
  }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  double slope = 0.01;
  template <class T>
  constexpr T forward(const T& x) const {
    return where(x > constant<T>(0), x, T(x * constant<T>(slope)));
  }
  template <class T>
  constexpr T backward(const T& dy, const T& x, const T&) const {
    return where(x > constant<T>(0), dy, T(dy * constant<T>(slope)));
  }
};

// The normal distribution function.
template <class T>
constexpr T normal_cdf(const T& x) {
  if constexpr (math::Single<T>)
    return math::normal_cdf(x);
  else  // erfc(-z) instead of 1 + erf(z): no cancellation where it is small
    return constant<T>(0.5) * erfc(x * constant<T>(-kSqrtHalf));
}

struct Gelu {  // x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016; the exact form)
  static constexpr const char* name = "gelu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    if constexpr (math::Single<T>)
      return math::gelu(x);
    else
      return x * normal_cdf(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy * (normal_cdf(x) + x * (constant<T>(kInvSqrtTwoPi) * exp(x * x * constant<T>(-0.5))));
  }
};

struct Silu {  // x * sigmoid(x)
  static constexpr const char* name = "silu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return x * logistic(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    const T s = logistic(x);
    return dy * (s * (constant<T>(1) + x * (constant<T>(1) - s)));
  }
};

struct Elu {  // x for x > 0, else alpha * (e^x - 1)
  static constexpr const char* name = "elu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  double alpha = 1;
  template <class T>
  constexpr T forward(const T& x) const {
    return where(x > constant<T>(0), x, T(constant<T>(alpha) * expm1(x)));
  }
  template <class T>
  constexpr T backward(const T& dy, const T& x, const T&) const {
    return where(x > constant<T>(0), dy, T(dy * (constant<T>(alpha) * exp(x))));
  }
};

struct Softplus {  // log(1 + e^(beta x)) / beta, written so that nothing overflows
  static constexpr const char* name = "softplus";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  double beta = 1;
  template <class T>
  constexpr T forward(const T& x) const {
    using std::abs;
    return where(x > constant<T>(0), x, T(zeros_like(x))) +
           log1p(exp(-abs(x * constant<T>(beta)))) * constant<T>(1 / beta);
  }
  template <class T>
  constexpr T backward(const T& dy, const T& x, const T&) const {
    return dy * logistic(T(x * constant<T>(beta)));
  }
};

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::elementwise
