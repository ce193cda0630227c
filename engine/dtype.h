#pragma once
// The element types of a tensor, and the rules by which they mix.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/half.h"

namespace halfgrad {

enum class DType : std::uint8_t { f16, f32, f64, i32, i64, u8, boolean };
using enum DType;  // halfgrad::f16, halfgrad::f32, ...

inline constexpr int kDTypeCount = 7;

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case f16:
      return 2;
    case f32:
    case i32:
      return 4;
    case f64:
    case i64:
      return 8;
    case u8:
    case boolean:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case f16:
      return "f16";
    case f32:
      return "f32";
    case f64:
      return "f64";
    case i32:
      return "i32";
    case i64:
      return "i64";
    case u8:
      return "u8";
    case boolean:
      return "bool";
  }
  return "?";
}

constexpr bool is_floating(DType t) { return t == f16 || t == f32 || t == f64; }

// C++ type -> DType.
template <class T>
struct dtype_of_t;
template <>
struct dtype_of_t<half> {
  static constexpr DType value = f16;
};
template <>
struct dtype_of_t<float> {
  static constexpr DType value = f32;
};
template <>
struct dtype_of_t<double> {
  static constexpr DType value = f64;
};
template <>
struct dtype_of_t<std::int32_t> {
  static constexpr DType value = i32;
};
template <>
struct dtype_of_t<std::int64_t> {
  static constexpr DType value = i64;
};
template <>
struct dtype_of_t<std::uint8_t> {
  static constexpr DType value = u8;
};
template <>
struct dtype_of_t<bool> {
  static constexpr DType value = boolean;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

/// Calls f with a value of the C++ type that `t` stands for: `visit_dtype(t, [&]<class T>(T) {...})`.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case f16:
      return f(half());
    case f64:
      return f(double());
    case i32:
      return f(std::int32_t());
    case i64:
      return f(std::int64_t());
    case u8:
      return f(std::uint8_t());
    case boolean:
      return f(bool());
    case f32:
    default:
      return f(float());
  }
}

/// The type in which arithmetic on `t` is done before it is rounded once to `t`: f32 for f16, i64 for every integer
/// type.
constexpr DType compute_dtype(DType t) {
  switch (t) {
    case f16:
    case f32:
      return f32;
    case f64:
      return f64;
    default:
      return i64;
  }
}

/// The smallest type that holds both: floating beats integer, integer beats bool, and the wider wins (u8 with i32 is
/// i32). f16 with f32 is f32.
constexpr DType promote(DType a, DType b) {
  constexpr auto rank = [](DType t) {
    switch (t) {
      case boolean:
        return 0;
      case u8:
        return 1;
      case i32:
        return 2;
      case i64:
        return 3;
      case f16:
        return 4;
      case f32:
        return 5;
      case f64:
        return 6;
    }
    return 0;
  };
  return rank(a) >= rank(b) ? a : b;
}

}  // namespace halfgrad
