#pragma once
// Every elementwise op, each as one struct: its name, its forward and its gradient, written once as templates.
//
// They are instantiated with T = float, double or int64 inside the device kernels (halves are widened to float there
// and rounded once on the way out), and with T = Tensor when a gradient of the gradient is wanted. From one definition
// come the op on every device, in every dtype, its fused backward kernel and its higher derivatives.
//
//   name      what errors and the graph call it
//   types     what it accepts: `numbers` computes integers as integers, `floats` turns them into f32 first, and
//             `predicate` answers with bool
//   uses      which of x and y the gradient reads (only those are kept for backward)
//   fields    constants of the op (at most two doubles), e.g. the slope of leaky_relu
//   forward   y = f(x)
//   backward  dx from dy, x and y. Written with dy, not as a bare derivative, so that a gradient that is masked out is
//             exactly 0 even where dy is inf or NaN.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

// The kernels are compiled once per instruction set; the inline namespace keeps the copies apart at link time.
#ifndef HALFGRAD_ISA
#define HALFGRAD_ISA portable
#endif

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

// These have namesakes for Tensors, which are found by argument-dependent lookup when T = Tensor.
template <class T>
constexpr T where(bool condition, T a, T b) {
  return condition ? a : b;
}
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

inline constexpr double kSqrtHalf = 0.70710678118654752440;       // sqrt(1/2)
inline constexpr double kTwoOverSqrtPi = 1.12837916709551257390;  // 2 / sqrt(pi)
inline constexpr double kInvSqrtTwoPi = 0.39894228040143267794;   // 1 / sqrt(2 pi)

// ---- one operand ----------------------------------------------------------------------------------------------------

struct Neg {
  static constexpr const char* name = "neg";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static T forward(const T& x) {
    return -x;
  }
  template <class T>
  static T backward(const T& dy, const T&, const T&) {
    return -dy;
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::abs;
    return abs(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {  // 0 at 0, as in PyTorch
    return where(x > constant<T>(0), dy, where(x < constant<T>(0), T(-dy), T(zeros_like(dy))));
  }
};

struct Sign {  // -1, 0 or 1; NaN stays NaN
  static constexpr const char* name = "sign";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static T forward(const T& x) {
    return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x;
  }
  template <class T>
  static T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Floor {
  static constexpr const char* name = "floor";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static T forward(const T& x) {
    return std::floor(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Ceil {
  static constexpr const char* name = "ceil";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static T forward(const T& x) {
    return std::ceil(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Round {  // to nearest, ties to even
  static constexpr const char* name = "round";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::nothing;
  template <class T>
  static T forward(const T& x) {
    return std::nearbyint(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T&) {
    return zeros_like(dy);
  }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    return constant<T>(1) / x;
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return -dy * (y * y);
  }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    return x * x;
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    return dy * (x + x);
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    using std::exp;
    return exp(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return dy * y;
  }
};

struct Expm1 {  // exp(x) - 1, exact near 0
  static constexpr const char* name = "expm1";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    using std::expm1;
    return expm1(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return dy * (y + constant<T>(1));
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::log;
    return log(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    return dy / x;
  }
};

struct Log1p {  // log(1 + x), exact near 0
  static constexpr const char* name = "log1p";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::log1p;
    return log1p(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    return dy / (x + constant<T>(1));
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    using std::sqrt;
    return sqrt(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return dy / (y + y);
  }
};

struct Rsqrt {  // 1 / sqrt(x)
  static constexpr const char* name = "rsqrt";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    using std::sqrt;
    return constant<T>(1) / sqrt(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return constant<T>(-0.5) * dy * (y * y * y);
  }
};

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::sin;
    return sin(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    using std::cos;
    return dy * cos(x);
  }
};

struct Cos {
  static constexpr const char* name = "cos";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::cos;
    return cos(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    using std::sin;
    return -dy * sin(x);
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    using std::tanh;
    return tanh(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return dy * (constant<T>(1) - y * y);
  }
};

// 1 / (1 + e^-x). Other ops use it too.
template <class T>
T logistic(const T& x) {
  using std::exp;
  return constant<T>(1) / (constant<T>(1) + exp(-x));
}

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    return logistic(x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return dy * (y * (constant<T>(1) - y));
  }
};

struct Relu {  // NaN stays NaN
  static constexpr const char* name = "relu";
  static constexpr Types types = Types::numbers;
  static constexpr Uses uses = Uses::output;
  template <class T>
  static T forward(const T& x) {
    return where(x < constant<T>(0), T(zeros_like(x)), x);
  }
  template <class T>
  static T backward(const T& dy, const T&, const T& y) {
    return where(y > constant<T>(0), dy, T(zeros_like(dy)));
  }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  double slope = 0.01;
  template <class T>
  T forward(const T& x) const {
    return where(x > constant<T>(0), x, T(x * constant<T>(slope)));
  }
  template <class T>
  T backward(const T& dy, const T& x, const T&) const {
    return where(x > constant<T>(0), dy, T(dy * constant<T>(slope)));
  }
};

struct Gelu {  // x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016; the exact form)
  static constexpr const char* name = "gelu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  // erfc(-z) instead of 1 + erf(z): no cancellation where Phi is small.
  template <class T>
  static T forward(const T& x) {
    using std::erfc;
    return constant<T>(0.5) * x * erfc(x * constant<T>(-kSqrtHalf));
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    using std::erfc;
    using std::exp;
    return dy * (constant<T>(0.5) * erfc(x * constant<T>(-kSqrtHalf)) +
                 x * (constant<T>(kInvSqrtTwoPi) * exp(x * x * constant<T>(-0.5))));
  }
};

struct Silu {  // x * sigmoid(x)
  static constexpr const char* name = "silu";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    return x * logistic(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
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
  T forward(const T& x) const {
    using std::expm1;
    return where(x > constant<T>(0), x, T(constant<T>(alpha) * expm1(x)));
  }
  template <class T>
  T backward(const T& dy, const T& x, const T&) const {
    using std::exp;
    return where(x > constant<T>(0), dy, T(dy * (constant<T>(alpha) * exp(x))));
  }
};

struct Softplus {  // log(1 + e^(beta x)) / beta, written so that nothing overflows
  static constexpr const char* name = "softplus";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  double beta = 1;
  template <class T>
  T forward(const T& x) const {
    using std::abs;
    using std::exp;
    using std::log1p;
    return where(x > constant<T>(0), x, T(zeros_like(x))) +
           log1p(exp(-abs(x * constant<T>(beta)))) * constant<T>(1 / beta);
  }
  template <class T>
  T backward(const T& dy, const T& x, const T&) const {
    return dy * logistic(T(x * constant<T>(beta)));
  }
};

struct Erf {
  static constexpr const char* name = "erf";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::erf;
    return erf(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    using std::exp;
    return dy * (constant<T>(kTwoOverSqrtPi) * exp(-(x * x)));
  }
};

struct Erfc {  // 1 - erf(x)
  static constexpr const char* name = "erfc";
  static constexpr Types types = Types::floats;
  static constexpr Uses uses = Uses::input;
  template <class T>
  static T forward(const T& x) {
    using std::erfc;
    return erfc(x);
  }
  template <class T>
  static T backward(const T& dy, const T& x, const T&) {
    using std::exp;
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
  T forward(const T& x) const {
    return where(x > constant<T>(max), constant<T>(max), where(x < constant<T>(min), constant<T>(min), x));
  }
  template <class T>
  T backward(const T& dy, const T& x, const T&) const {
    return where(x < constant<T>(min), T(zeros_like(dy)), where(x > constant<T>(max), T(zeros_like(dy)), dy));
  }
};

struct LogicalNot {
  static constexpr const char* name = "logical_not";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& x) {
    return x == 0;
  }
};

struct IsNan {
  static constexpr const char* name = "isnan";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& x) {
    return x != x;
  }
};

struct IsInf {
  static constexpr const char* name = "isinf";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& x) {
    return x == x && T(x - x) != T(x - x);
  }
};

struct IsFinite {
  static constexpr const char* name = "isfinite";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& x) {
    return T(x - x) == T(x - x);
  }
};

// ---- two operands ---------------------------------------------------------------------------------------------------
// backward_a and backward_b give the gradient of the first and the second; `uses` says what they read.

enum class BinaryUses { nothing, inputs, inputs_and_output };

struct Add {
  static constexpr const char* name = "add";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::nothing;
  template <class T>
  static T forward(const T& a, const T& b) {
    return a + b;
  }
  template <class T>
  static T backward_a(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
  template <class T>
  static T backward_b(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::nothing;
  template <class T>
  static T forward(const T& a, const T& b) {
    return a - b;
  }
  template <class T>
  static T backward_a(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
  template <class T>
  static T backward_b(const T& dy, const T&, const T&, const T&) {
    return -dy;
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static T forward(const T& a, const T& b) {
    return a * b;
  }
  template <class T>
  static T backward_a(const T& dy, const T&, const T& b, const T&) {
    return dy * b;
  }
  template <class T>
  static T backward_b(const T& dy, const T& a, const T&, const T&) {
    return dy * a;
  }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr Types types = Types::floats;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static T forward(const T& a, const T& b) {
    return a / b;
  }
  template <class T>
  static T backward_a(const T& dy, const T&, const T& b, const T&) {
    return dy / b;
  }
  template <class T>
  static T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return -dy * (a / b / b);
  }
};

struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs_and_output;
  template <class T>
  static T forward(const T& a, const T& b) {
    if constexpr (std::is_integral_v<T>) {
      return integer_power(a, b);
    } else {
      using std::pow;
      return pow(a, b);
    }
  }
  // b a^(b-1), and exactly 0 for b = 0
  template <class T>
  static T backward_a(const T& dy, const T& a, const T& b, const T&) {
    using std::pow;
    return where(b == constant<T>(0), T(zeros_like(dy)), T(dy * (b * pow(a, T(b - constant<T>(1))))));
  }
  // a^b log a, and 0 for a = 0, b >= 0, where a^b does not change with b
  template <class T>
  static T backward_b(const T& dy, const T& a, const T& b, const T& y) {
    using std::log;
    return where(a == constant<T>(0), where(b >= constant<T>(0), T(zeros_like(dy)), T(dy * (y * log(a)))),
                 T(dy * (y * log(a))));
  }
};

struct Maximum {  // NaN wins; on a tie each operand gets half of the gradient, as in PyTorch
  static constexpr const char* name = "maximum";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static T forward(const T& a, const T& b) {
    return where(a != a, a, where(a > b, a, b));
  }
  template <class T>
  static T backward_a(const T& dy, const T& a, const T& b, const T&) {
    return where(a > b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
  template <class T>
  static T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return where(a < b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static T forward(const T& a, const T& b) {
    return where(a != a, a, where(a < b, a, b));
  }
  template <class T>
  static T backward_a(const T& dy, const T& a, const T& b, const T&) {
    return where(a < b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
  template <class T>
  static T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return where(a > b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
};

struct Eq {
  static constexpr const char* name = "eq";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a == b;
  }
};
struct Ne {
  static constexpr const char* name = "ne";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a != b;
  }
};
struct Lt {
  static constexpr const char* name = "lt";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a < b;
  }
};
struct Le {
  static constexpr const char* name = "le";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a <= b;
  }
};
struct Gt {
  static constexpr const char* name = "gt";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a > b;
  }
};
struct Ge {
  static constexpr const char* name = "ge";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a >= b;
  }
};
struct LogicalAnd {
  static constexpr const char* name = "logical_and";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a != 0 && b != 0;
  }
};
struct LogicalOr {
  static constexpr const char* name = "logical_or";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return a != 0 || b != 0;
  }
};
struct LogicalXor {
  static constexpr const char* name = "logical_xor";
  static constexpr Types types = Types::predicate;
  template <class T>
  static bool forward(const T& a, const T& b) {
    return (a != 0) != (b != 0);
  }
};

// ---- the lists: an op's number on the seam is its position here -----------------------------------------------------

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

using UnaryOps =
    List<Neg, Abs, Sign, Floor, Ceil, Round, Reciprocal, Square, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Sin, Cos, Tanh,
         Sigmoid, Relu, LeakyRelu, Gelu, Silu, Elu, Softplus, Erf, Erfc, Clamp, LogicalNot, IsNan, IsInf, IsFinite>;
using BinaryOps =
    List<Add, Sub, Mul, Div, Pow, Maximum, Minimum, Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor>;

}  // namespace HALFGRAD_ISA
}  // namespace elementwise
}  // namespace halfgrad
