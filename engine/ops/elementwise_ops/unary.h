#pragma once
// Elementwise ops of one operand, first part: arithmetic, the functions of <cmath>, clamp and the tests for inf and NaN.

#include "engine/ops/elementwise_ops/op.h"

namespace halfgrad::elementwise {
inline namespace HALFGRAD_ISA {

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static constexpr T forward(const T& x) {
    return -x;
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T&) {
    return -dy;
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::abs;
    return abs(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {  // 0 at 0, as in PyTorch
    return where(x > constant<T>(0), dy, where(x < constant<T>(0), T(-dy), T(zeros_like(dy))));
  }
};

struct Sign {  // -1, 0 or 1; NaN stays NaN
  static constexpr const char* name = "sign";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static constexpr T forward(const T& x) {
    return where(x > constant<T>(0), T(1),
                 where(x < constant<T>(0), T(-1), where(x == constant<T>(0), T(zeros_like(x)), x)));
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Floor {
  static constexpr const char* name = "floor";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::floor;
    return floor(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Ceil {
  static constexpr const char* name = "ceil";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::ceil;
    return ceil(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Round {  // to nearest, ties to even
  static constexpr const char* name = "round";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::nearbyint;
    return nearbyint(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return constant<T>(1) / x;
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return -dy * (y * y);
  }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return x * x;
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy * (x + x);
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return exp(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return dy * y;
  }
};

struct Expm1 {  // exp(x) - 1, exact near 0
  static constexpr const char* name = "expm1";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    return expm1(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return dy * (y + constant<T>(1));
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return log(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy / x;
  }
};

struct Log1p {  // log(1 + x), exact near 0
  static constexpr const char* name = "log1p";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return log1p(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy / (x + constant<T>(1));
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::sqrt;
    return sqrt(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return dy / (y + y);
  }
};

struct Rsqrt {  // 1 / sqrt(x)
  static constexpr const char* name = "rsqrt";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static constexpr T forward(const T& x) {
    using std::sqrt;
    return constant<T>(1) / sqrt(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T&, const T& y) {
    return constant<T>(-0.5) * dy * (y * y * y);
  }
};

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return sin(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy * cos(x);
  }
};

struct Cos {
  static constexpr const char* name = "cos";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return cos(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return -dy * sin(x);
  }
};

struct Erf {
  static constexpr const char* name = "erf";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return erf(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy * (constant<T>(kTwoOverSqrtPi) * exp(-(x * x)));
  }
};

struct Erfc {  // 1 - erf(x)
  static constexpr const char* name = "erfc";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static constexpr T forward(const T& x) {
    return erfc(x);
  }
  template <class T>
  static constexpr T backward(const T& dy, const T& x, const T&) {
    return dy * (constant<T>(-kTwoOverSqrtPi) * exp(-(x * x)));
  }
};

struct Clamp {  // NaN stays NaN; the gradient passes where min <= x <= max
  static constexpr const char* name = "clamp";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::input;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  template <class T>
  constexpr T forward(const T& x) const {
    return where(x > constant<T>(max), constant<T>(max), where(x < constant<T>(min), constant<T>(min), x));
  }
  template <class T>
  constexpr T backward(const T& dy, const T& x, const T&) const {
    return where(x < constant<T>(min), T(zeros_like(dy)), where(x > constant<T>(max), T(zeros_like(dy)), dy));
  }
};

struct LogicalNot {
  static constexpr const char* name = "logical_not";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& x) {
    return x == constant<T>(0);
  }
};

struct IsNan {
  static constexpr const char* name = "isnan";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& x) {
    return x != x;
  }
};

struct IsInf {
  static constexpr const char* name = "isinf";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& x) {
    return x == x && T(x - x) != T(x - x);
  }
};

struct IsFinite {
  static constexpr const char* name = "isfinite";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& x) {
    return T(x - x) == T(x - x);
  }
};

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::elementwise
