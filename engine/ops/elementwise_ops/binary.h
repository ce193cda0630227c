#pragma once
// Elementwise ops of two operands, comparisons and logic. backward_a and backward_b give the gradient of the first and
// of the second; `uses` says what they read.

#include "engine/ops/elementwise_ops/op.h"

namespace halfgrad::elementwise {
inline namespace HALFGRAD_ISA {

enum class BinaryUses { nothing, inputs, inputs_and_output };

struct Add {
  static constexpr const char* name = "add";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::nothing;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return a + b;
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::nothing;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return a - b;
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T&, const T&, const T&) {
    return dy;
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T&, const T&, const T&) {
    return -dy;
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return a * b;
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T&, const T& b, const T&) {
    return dy * b;
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T& a, const T&, const T&) {
    return dy * a;
  }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr Types types = Types::floats;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return a / b;
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T&, const T& b, const T&) {
    return dy / b;
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return -dy * (a / b / b);
  }
};

struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs_and_output;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    if constexpr (std::is_integral_v<T>) {
      return integer_power(a, b);
    } else {
      return pow(a, b);
    }
  }
  // b a^(b-1), and exactly 0 for b = 0
  template <class T>
  static constexpr T backward_a(const T& dy, const T& a, const T& b, const T&) {
    return where(b == constant<T>(0), T(zeros_like(dy)), T(dy * (b * pow(a, T(b - constant<T>(1))))));
  }
  // a^b log a, and 0 for a = 0, b >= 0, where a^b does not change with b
  template <class T>
  static constexpr T backward_b(const T& dy, const T& a, const T& b, const T& y) {
    return where(a == constant<T>(0), where(b >= constant<T>(0), T(zeros_like(dy)), T(dy * (y * log(a)))),
                 T(dy * (y * log(a))));
  }
};

struct Maximum {  // NaN wins; on a tie each operand gets half of the gradient, as in PyTorch
  static constexpr const char* name = "maximum";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return where(a != a, a, where(a > b, a, b));
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T& a, const T& b, const T&) {
    return where(a > b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return where(a < b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  static constexpr Types types = Types::numbers;
  static constexpr BinaryUses uses = BinaryUses::inputs;
  template <class T>
  static constexpr T forward(const T& a, const T& b) {
    return where(a != a, a, where(a < b, a, b));
  }
  template <class T>
  static constexpr T backward_a(const T& dy, const T& a, const T& b, const T&) {
    return where(a < b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
  template <class T>
  static constexpr T backward_b(const T& dy, const T& a, const T& b, const T&) {
    return where(a > b, dy, where(a == b, T(dy * constant<T>(0.5)), T(zeros_like(dy))));
  }
};

struct Eq {
  static constexpr const char* name = "eq";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a == b;
  }
};
struct Ne {
  static constexpr const char* name = "ne";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a != b;
  }
};
struct Lt {
  static constexpr const char* name = "lt";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a < b;
  }
};
struct Le {
  static constexpr const char* name = "le";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a <= b;
  }
};
struct Gt {
  static constexpr const char* name = "gt";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a > b;
  }
};
struct Ge {
  static constexpr const char* name = "ge";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a >= b;
  }
};
struct LogicalAnd {
  static constexpr const char* name = "logical_and";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a != constant<T>(0) && b != constant<T>(0);
  }
};
struct LogicalOr {
  static constexpr const char* name = "logical_or";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return a != constant<T>(0) || b != constant<T>(0);
  }
};
struct LogicalXor {
  static constexpr const char* name = "logical_xor";
  static constexpr Types types = Types::predicate;
  template <class T>
  static constexpr auto forward(const T& a, const T& b) {
    return (a != constant<T>(0)) != (b != constant<T>(0));
  }
};

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::elementwise
