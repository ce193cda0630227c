#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>

// half: the 16-bit floating-point number of IEEE 754, which the standard calls binary16.
//
//     15 14       10 9                 0
//    +--+-----------+-------------------+
//    |s | exponent  |     fraction      |     1 + 5 + 10 bits
//    +--+-----------+-------------------+
//
//     exponent   fraction   value                                         |value|
//     1 ... 30   any        (-1)^s * 2^(exponent - 15) * 1.fraction       2^-14 ... 65504    normal
//     0          not 0      (-1)^s * 2^-14 * 0.fraction                   2^-24 ... 2^-14    subnormal
//     0          0          +0 or -0, which compare equal
//     31         0          +inf or -inf: what became too large
//     31         not 0      NaN, "not a number": 0/0, inf - inf; unequal to everything, itself included
//
// The exponent is stored with a bias of 15, so that it needs no sign of its own. A normal number has an
// implicit 1 in front of its fraction and therefore 11 significant bits: about three decimal digits.
// Subnormal numbers drop that 1; they are evenly spaced by 2^-24 and fill the gap between 2^-14 and 0.
// The bits of the positive numbers, read as integers, are in the order of their values: adding one to
// the bits gives the next larger half, even where the exponent changes, and after 65504 comes inf.
//
// A real number that lies between two halves is rounded to the nearer one, and a tie, exactly midway,
// goes to the one whose last bit is 0 ("to nearest even": ties go up as often as down, so that long
// sums do not drift). From 65520 on, midway between 65504 and the 65536 that does not exist, numbers
// become inf; up to 2^-25, midway between 0 and 2^-24, they become 0.
//
// Rounding twice is not rounding once. The double 1 + 2^-11 + 2^-30 is above the midpoint of the halves
// 1 and 1 + 2^-10, so 1 + 2^-10 is right. But its nearest float is 1 + 2^-11, the midpoint itself, and
// that tie then goes to 1. So float, double and integers each go to half directly.

namespace halfgrad {

namespace detail {

// Bits of the half nearest to significand * 2^exponent, ties to even; a positive number or zero.
// `top` is the position of the significand's leading 1 bit. It may be given too large for numbers far
// below 2^-25, because the spacing of subnormal halves does not depend on it.
[[gnu::always_inline]] constexpr uint16_t round_to_half_bits(uint64_t significand, int exponent, int top) {
  constexpr uint16_t infinity = 0x7C00;
  const int magnitude = exponent + top;  // the number is in [2^magnitude, 2^(magnitude + 1))
  if (magnitude > 15) return infinity;

  // Neighbouring halves are 2^spacing apart here. Count the number in units of that spacing.
  const int spacing = magnitude - 10 > -24 ? magnitude - 10 : -24;
  const int dropped = spacing - exponent;  // so many low bits of the significand are below one unit
  if (dropped > 63) return 0;
  uint64_t units = 0;
  if (dropped <= 0) {
    units = significand << -dropped;
  } else {
    units = significand >> dropped;
    const uint64_t rest = significand - (units << dropped);
    const uint64_t tie = uint64_t{1} << (dropped - 1);
    if (rest > tie || (rest == tie && units % 2 == 1)) ++units;
  }

  // A normal number's units include its implicit 1, which here adds one to the exponent field. A carry
  // out of the rounding does the same once more: to the next power of two, or from 65504 to infinity.
  return static_cast<uint16_t>((static_cast<uint64_t>(spacing + 24) << 10) + units);
}

}  // namespace detail

// Conversions on bare bits. They are the same portable code in every file that includes this header,
// whatever instruction set the file is compiled for, and agree bit for bit with the conversion
// instructions of x86 (F16C) and of NVIDIA GPUs, NaNs excepted on the latter. They are always inlined,
// so that no copy compiled for a newer CPU can be picked by the linker for the whole program.

// Nearest half, ties to even. A NaN stays a NaN, made quiet, with its sign and its upper payload bits.
[[gnu::always_inline]] constexpr uint16_t float_to_half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const int exponent = static_cast<int>(bits >> 23 & 0xFF);
  const uint32_t fraction = bits & 0x7FFFFF;
  if (exponent == 0xFF && fraction != 0) return static_cast<uint16_t>(sign | 0x7E00 | fraction >> 13);
  // Infinity has the largest exponent and ends up as infinity. The implicit 1 is wrong for subnormal
  // floats, but they are so far below 2^-25 that they become 0 with it as well.
  return sign | detail::round_to_half_bits(fraction | 0x800000, exponent - 127 - 23, 23);
}

// Nearest half, ties to even, rounded once: not by way of float. NaNs as above.
[[gnu::always_inline]] constexpr uint16_t double_to_half_bits(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
  const uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
  if (exponent == 0x7FF && fraction != 0) return static_cast<uint16_t>(sign | 0x7E00 | fraction >> 42);
  return sign | detail::round_to_half_bits(fraction | uint64_t{1} << 52, exponent - 1023 - 52, 52);
}

// Nearest half, ties to even; infinity from 65520 on.
[[gnu::always_inline]] constexpr uint16_t integer_to_half_bits(std::integral auto value) {
  const auto wrapped = static_cast<uint64_t>(value);  // NOLINT(bugprone-signed-char-misuse): keeps the sign
  const bool negative = value < decltype(value){};
  const uint64_t significand = negative ? 0 - wrapped : wrapped;  // right for INT64_MIN as well
  if (significand == 0) return 0;
  const int top = static_cast<int>(std::bit_width(significand)) - 1;
  return static_cast<uint16_t>((negative ? 0x8000 : 0) | detail::round_to_half_bits(significand, 0, top));
}

// Exact: every half is a float. A NaN is made quiet and keeps its sign and payload.
[[gnu::always_inline]] constexpr float half_bits_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  uint32_t magnitude = 0;
  if (exponent == 31) {
    magnitude = 0x7F800000 | fraction << 13 | (fraction != 0 ? 0x400000U : 0U);
  } else if (exponent != 0) {
    magnitude = (exponent - 15 + 127) << 23 | fraction << 13;
  } else {
    // Subnormal halves are normal floats, so this is right also where the CPU flushes subnormals to 0.
    magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
  }
  return std::bit_cast<float>(sign | magnitude);
}

// A binary16 number that behaves like the built-in floating-point types.
//
//   half h = 1.5f;              float converts implicitly: kernels compute in float and store half
//   half(0.1), half(7)          double and integers only explicitly, each rounded once
//   float f = h;                exact, therefore implicit; by way of float also to double and the rest
//   h + h  is half              h + 1.0f and h + 1 are float, h + 1.0 is double, as for built-in types
//   h += x                      computed as h + x, then rounded to half once
//
// Comparisons are not defined here: both sides convert to float, which is exact, so that the built-in
// comparisons with their rules for NaN and -0 apply. So do the functions of <cmath>, with float results.
class half {
 public:
  // `half h;` is uninitialised, as for float; `half h{};` is zero.
  half() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  [[gnu::always_inline]] constexpr half(std::same_as<float> auto value) : bits_(float_to_half_bits(value)) {}
  [[gnu::always_inline]] explicit constexpr half(std::same_as<double> auto value) : bits_(double_to_half_bits(value)) {}
  [[gnu::always_inline]] explicit constexpr half(std::integral auto value) : bits_(integer_to_half_bits(value)) {}

  // The half with exactly these bits, and the bits of a half.
  [[gnu::always_inline]] static constexpr half from_bits(uint16_t bits) {
    half result{};
    result.bits_ = bits;
    return result;
  }
  [[gnu::always_inline]] constexpr uint16_t bits() const { return bits_; }

  // NOLINTNEXTLINE(google-explicit-constructor)
  [[gnu::always_inline]] constexpr operator float() const { return half_bits_to_float(bits_); }

  // Arithmetic in float, rounded to half once more, gives the half nearest to the exact result, although
  // that rounds twice. A float has 24 significant bits and 24 >= 2 * 11 + 2: wide enough that a sum,
  // product, quotient or square root of two 11-bit numbers is never rounded onto a tie between two halves
  // that it was not on before (Figueroa, "When is double rounding innocuous?", 1995). Nor can the float
  // overflow or become subnormal.
  //
  // The operators take exactly two halves and no conversions; otherwise `h + 1.0f` could mean this
  // operator as well as the built-in one for floats.
  [[gnu::always_inline]] friend constexpr half operator+(std::same_as<half> auto a, std::same_as<half> auto b) {
    return float{a} + float{b};
  }
  [[gnu::always_inline]] friend constexpr half operator-(std::same_as<half> auto a, std::same_as<half> auto b) {
    return float{a} - float{b};
  }
  [[gnu::always_inline]] friend constexpr half operator*(std::same_as<half> auto a, std::same_as<half> auto b) {
    return float{a} * float{b};
  }
  [[gnu::always_inline]] friend constexpr half operator/(std::same_as<half> auto a, std::same_as<half> auto b) {
    return float{a} / float{b};
  }
  [[gnu::always_inline]] friend constexpr half operator+(half a) { return a; }
  [[gnu::always_inline]] friend constexpr half operator-(half a) { return from_bits(a.bits_ ^ 0x8000); }

  // x: a half or any built-in number.
  [[gnu::always_inline]] constexpr half& operator+=(auto x) { return *this = half(*this + x); }
  [[gnu::always_inline]] constexpr half& operator-=(auto x) { return *this = half(*this - x); }
  [[gnu::always_inline]] constexpr half& operator*=(auto x) { return *this = half(*this * x); }
  [[gnu::always_inline]] constexpr half& operator/=(auto x) { return *this = half(*this / x); }

  // Kinds of numbers. Friends inside the class are found for arguments of type half only. At namespace
  // scope, isfinite(1e6f) would find them too, convert to half, and wrongly answer no.
  [[gnu::always_inline]] friend constexpr bool isnan(half a) { return (a.bits_ & 0x7FFF) > 0x7C00; }
  [[gnu::always_inline]] friend constexpr bool isinf(half a) { return (a.bits_ & 0x7FFF) == 0x7C00; }
  [[gnu::always_inline]] friend constexpr bool isfinite(half a) { return (a.bits_ & 0x7C00) != 0x7C00; }
  [[gnu::always_inline]] friend constexpr bool signbit(half a) { return (a.bits_ & 0x8000) != 0; }

  // Prints like a float. Five digits tell any two halves apart; the default precision of a stream is six.
  friend std::ostream& operator<<(std::ostream& out, half a) { return out << float{a}; }

 private:
  uint16_t bits_;
};

static_assert(sizeof(half) == 2 && alignof(half) == 2);

inline namespace literals {

// 1.5_h and 2_h. Write -1.5_h for negative numbers.
consteval half operator""_h(unsigned long long value) { return half(value); }
consteval half operator""_h(long double value) {
  // Where long double is wider than double, an inexact double could sit on a tie of two halves. Forcing
  // its last bit to 1, towards the value, keeps it off every tie ("rounding to odd").
  const auto nearest = static_cast<double>(value);
  const auto bits = std::bit_cast<uint64_t>(nearest);
  if (static_cast<long double>(nearest) == value || bits % 2 == 1) return half(nearest);
  return half(std::bit_cast<double>(static_cast<long double>(nearest) < value ? bits + 1 : bits - 1));
}

}  // namespace literals

inline constexpr half half_max = half::from_bits(0x7BFF);            // 65504, the largest finite half
inline constexpr half half_min_normal = half::from_bits(0x0400);     // 2^-14, below it bits are lost
inline constexpr half half_min_subnormal = half::from_bits(0x0001);  // 2^-24, the smallest above 0
inline constexpr half half_epsilon = half::from_bits(0x1400);        // 2^-10, from 1 to the next half
inline constexpr half half_infinity = half::from_bits(0x7C00);
inline constexpr half half_nan = half::from_bits(0x7E00);

}  // namespace halfgrad

// What std::numeric_limits<float> says about float, for half.
template <>
class std::numeric_limits<halfgrad::half> {
 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool is_iec559 = true;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr std::float_denorm_style has_denorm = std::denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr int radix = 2;
  static constexpr int digits = 11;       // significant bits, the implicit 1 included
  static constexpr int digits10 = 3;      // decimal digits that survive decimal -> half -> decimal
  static constexpr int max_digits10 = 5;  // decimal digits that identify every half
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;

  static constexpr halfgrad::half min() noexcept { return halfgrad::half_min_normal; }
  static constexpr halfgrad::half max() noexcept { return halfgrad::half_max; }
  static constexpr halfgrad::half lowest() noexcept { return -halfgrad::half_max; }
  static constexpr halfgrad::half denorm_min() noexcept { return halfgrad::half_min_subnormal; }
  static constexpr halfgrad::half epsilon() noexcept { return halfgrad::half_epsilon; }
  static constexpr halfgrad::half round_error() noexcept { return halfgrad::half::from_bits(0x3800); }  // 0.5
  static constexpr halfgrad::half infinity() noexcept { return halfgrad::half_infinity; }
  static constexpr halfgrad::half quiet_NaN() noexcept { return halfgrad::half_nan; }
  static constexpr halfgrad::half signaling_NaN() noexcept { return halfgrad::half::from_bits(0x7D00); }
};

// Equal halves have equal hashes, +0 and -0 too.
template <>
struct std::hash<halfgrad::half> {
  std::size_t operator()(halfgrad::half a) const noexcept { return std::hash<float>{}(a); }
};
