#include "engine/half.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

using halfgrad::half;
using namespace halfgrad::literals;

namespace {

// Exhaustive tests count instead of calling CHECK millions of times, and report their first failure.
struct Tally {
  int64_t wrong = 0;
  std::string first;
  void expect_same(uint16_t got, uint16_t want, double source) {
    if (got == want || wrong++ > 0) return;
    std::ostringstream text;
    text << std::hexfloat << source << std::hex << ": got bits 0x" << got << ", want 0x" << want;
    first = text.str();
  }
  void expect(bool right, double source) { expect_same(right ? 0 : 1, 0, source); }
};
#define CHECK_TALLY(tally)     \
  do {                         \
    INFO((tally).first);       \
    CHECK((tally).wrong == 0); \
  } while (false)

// The value of half bits straight from the definition, without the code under test.
double value_of(uint16_t bits) {
  const double sign = bits >> 15 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) return sign * (fraction != 0 ? NAN : INFINITY);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// The half nearest to x, by means of the C library's rounding of doubles to integers. Exact but slow.
uint16_t nearest_half(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7E00;
  x = std::abs(x);
  if (x >= 65520) return sign | 0x7C00;
  if (x == 0) return sign;
  const int spacing = std::max(std::ilogb(x) - 10, -24);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -spacing)), spacing);
  if (rounded < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(rounded, 24)));
  const int exponent = std::ilogb(rounded);
  const int fraction = static_cast<int>(std::ldexp(rounded, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

// NaNs count as the same whatever their sign and payload.
uint16_t without_payload(half h) { return isnan(h) ? 0x7E00 : h.bits(); }
uint16_t nearest_or_nan(double x) { return std::isnan(x) ? 0x7E00 : nearest_half(x); }

const std::vector<uint16_t> special_bits = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x0003, 0x03FE, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0401,
    0x07FF, 0x0800, 0x1400, 0x13FF, 0x2E66, 0x3555, 0x37FF, 0x3800, 0x3801, 0x3BFF, 0x3C00, 0xBC00,
    0x3C01, 0x3C02, 0x3FFF, 0x4000, 0x4001, 0x4200, 0x5BFF, 0x63FF, 0x6400, 0x6401, 0x6800, 0x77FF,
    0x7800, 0x7BFE, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE01, 0x7FFF};

#if defined(__x86_64__)
// By CPUID, because Clang 14's __builtin_cpu_supports does not know F16C. Its question about AVX includes
// whether the operating system saves the registers.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// GCC and Clang compile only these two functions for F16C; they are called only where the CPU has it.
[[gnu::target("f16c")]] float hardware_to_float(uint16_t bits) { return _cvtsh_ss(bits); }
[[gnu::target("f16c")]] uint16_t hardware_to_half(float value) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT), 0));
}
#endif

// What the compiler must accept and know before the program runs.
static_assert(std::is_trivial_v<half> && sizeof(half) == 2);
static_assert(std::is_same_v<decltype(half() + half()), half> && std::is_same_v<decltype(-half()), half>);
static_assert(std::is_same_v<decltype(half() + 1.0f), float> && std::is_same_v<decltype(1.0f * half()), float>);
static_assert(std::is_same_v<decltype(half() - 1), float> && std::is_same_v<decltype(half() / 2.0), double>);
static_assert(std::is_convertible_v<float, half> && std::is_convertible_v<half, float>);
static_assert(!std::is_convertible_v<double, half> && std::is_constructible_v<half, double>);
static_assert(!std::is_convertible_v<int, half> && std::is_constructible_v<half, int>);
static_assert(!std::is_constructible_v<half, long double>, "would round twice");
static_assert(std::totally_ordered<half>);
static_assert(1.5_h * 2_h == 3 && -1.5_h < 0.0f && 1_h + halfgrad::half_epsilon > 1_h);
static_assert(half::from_bits(0x3C00) == 1_h && (1_h).bits() == 0x3C00);

}  // namespace

TEST_CASE("half: every value becomes the right float and comes back from float and double") {
  Tally tally;
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = half::from_bits(static_cast<uint16_t>(i));
    const double value = value_of(h.bits());
    const float as_float = h;
    const auto as_double = static_cast<double>(h);
    if (std::isnan(value)) {
      tally.expect(std::isnan(as_float) && std::isnan(as_double), i);
      // Made quiet, but with sign and payload.
      tally.expect_same(half(as_float).bits(), h.bits() | 0x0200, i);
      tally.expect_same(half(as_double).bits(), h.bits() | 0x0200, i);
    } else {
      tally.expect(static_cast<double>(as_float) == value && as_double == value, i);
      tally.expect(std::signbit(as_float) == std::signbit(value), i);
      tally.expect_same(half(as_float).bits(), h.bits(), value);
      tally.expect_same(half(as_double).bits(), h.bits(), value);
    }
    tally.expect(isnan(h) == std::isnan(value) && isinf(h) == std::isinf(value), i);
    tally.expect(isfinite(h) == std::isfinite(value) && signbit(h) == (i >= 0x8000), i);
  }
  CHECK_TALLY(tally);
}

TEST_CASE("half: every midpoint between two halves and its neighbours round right") {
  Tally tally;
  for (uint16_t low = 0; low < 0x7C00; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const uint16_t even = low % 2 == 0 ? low : high;
    // Above 65504 comes 65536 in this respect, although its bits mean infinity.
    const double above = high == 0x7C00 ? 65536 : value_of(high);
    const double middle = (value_of(low) + above) / 2;
    const auto middle_float = static_cast<float>(middle);
    tally.expect(static_cast<double>(middle_float) == middle, middle);
    for (const double sign : {1.0, -1.0}) {
      const auto sign_bit = static_cast<uint16_t>(sign < 0 ? 0x8000 : 0);
      const auto sign_float = static_cast<float>(sign);
      tally.expect_same(half(sign_float * middle_float).bits(), even | sign_bit, middle);
      tally.expect_same(half(sign * middle).bits(), even | sign_bit, middle);
      // One unit of a float below and above, then one of a double, which float cannot tell from the tie.
      const float below_f = std::nextafter(middle_float, 0.0f), above_f = std::nextafter(middle_float, INFINITY);
      tally.expect_same(half(sign_float * below_f).bits(), low | sign_bit, below_f);
      tally.expect_same(half(sign_float * above_f).bits(), high | sign_bit, above_f);
      const double below_d = std::nextafter(middle, 0.0), above_d = std::nextafter(middle, INFINITY);
      tally.expect_same(half(sign * below_d).bits(), low | sign_bit, below_d);
      tally.expect_same(half(sign * above_d).bits(), high | sign_bit, above_d);
    }
  }
  CHECK_TALLY(tally);
}

TEST_CASE("half: rounding where the format ends") {
  SUBCASE("ties go to even") {
    CHECK(half(2049.0f) == 2048);
    CHECK(half(2051.0f) == 2052);
    CHECK(half(1.0 + 0x1p-11) == 1);
    CHECK(half(1.0 + 0x3p-11) == 1 + 0x1p-9);
  }
  SUBCASE("double is rounded once") {
    CHECK(half(1 + 0x1p-11 + 0x1p-30) == 1 + 0x1p-10);
    CHECK(half(static_cast<float>(1 + 0x1p-11 + 0x1p-30)) == 1);
  }
  SUBCASE("overflow starts at 65520") {
    CHECK(half(65519.996f) == 65504);
    CHECK(half(std::nextafter(65520.0, 0.0)) == 65504);
    CHECK(half(65519) == 65504);
    CHECK(isinf(half(65520.0f)));
    CHECK(isinf(half(65520.0)));
    CHECK(isinf(half(65520)));
    CHECK(half(-65520.0f) == -halfgrad::half_infinity);
    CHECK(isinf(half(std::numeric_limits<float>::max())));
    CHECK(isinf(half(std::numeric_limits<double>::max())));
    CHECK(half(-INFINITY) == -halfgrad::half_infinity);
  }
  SUBCASE("underflow starts at 2^-25") {
    CHECK(half(0x1p-24f) == halfgrad::half_min_subnormal);
    CHECK(half(0x1p-25f).bits() == 0);
    CHECK(half(-0x1p-25f).bits() == 0x8000);
    CHECK(half(std::nextafter(0x1p-25f, 1.0f)) == halfgrad::half_min_subnormal);
    CHECK(half(std::nextafter(0x1p-25, 1.0)) == halfgrad::half_min_subnormal);
    CHECK(half(0x1.8p-24f).bits() == 2);  // a tie, to even
    CHECK(half(std::numeric_limits<float>::denorm_min()).bits() == 0);
    CHECK(half(-std::numeric_limits<double>::denorm_min()).bits() == 0x8000);
  }
  SUBCASE("subnormals and normals meet") {
    CHECK(half(0x1.ff8p-15f).bits() == 0x03FF);
    CHECK(half(0x1.ffcp-15f).bits() == 0x0400);  // a tie, which carries into the exponent
    CHECK(half(0x1p-14f).bits() == 0x0400);
  }
}

TEST_CASE("half: integers of every type are rounded once") {
  Tally tally;
  for (int i = -70000; i <= 70000; ++i) tally.expect_same(half(i).bits(), nearest_half(i), i);
  CHECK_TALLY(tally);
  CHECK(half(std::numeric_limits<int8_t>::min()) == -128);
  CHECK(half(uint8_t{255}) == 255);
  CHECK(half(int16_t{-32768}) == -32768);
  CHECK(half(std::numeric_limits<int64_t>::min()) == -halfgrad::half_infinity);
  CHECK(half(std::numeric_limits<uint64_t>::max()) == halfgrad::half_infinity);
  CHECK(half(std::numeric_limits<uint32_t>::max()) == halfgrad::half_infinity);
  CHECK(half(true) == 1);
  CHECK(half(false).bits() == 0);
}

TEST_CASE("half: random floats and doubles agree with the slow reference") {
  std::mt19937_64 random(1);
  Tally tally;
  for (int i = 0; i < 400000; ++i) {
    const uint64_t bits = random();
    const auto any_float = std::bit_cast<float>(static_cast<uint32_t>(bits));
    tally.expect_same(without_payload(half(any_float)), nearest_or_nan(static_cast<double>(any_float)), any_float);
    // A double in or near the range of half.
    const double d = std::ldexp(static_cast<double>(static_cast<int64_t>(bits)), static_cast<int>(bits % 45) - 90);
    tally.expect_same(half(d).bits(), nearest_half(d), d);
  }
  CHECK_TALLY(tally);
}

TEST_CASE("half: conversions agree with the CPU's own instructions") {
#if defined(__x86_64__)
  if (!cpu_has_f16c()) {
    MESSAGE("skipped: this CPU has no F16C instructions");
    return;
  }
  Tally tally;
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const float want = hardware_to_float(static_cast<uint16_t>(i));
    const float got = halfgrad::half_bits_to_float(static_cast<uint16_t>(i));
    tally.expect(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want), i);
  }
  // A prime stride, so that all low bits vary. tests/slow tries every float.
  for (uint64_t i = 0; i <= 0xFFFFFFFF; i += 4099) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(i));
    tally.expect_same(halfgrad::float_to_half_bits(value), hardware_to_half(value), static_cast<double>(i));
  }
  CHECK_TALLY(tally);
#else
  MESSAGE("skipped: F16C instructions exist only on x86");
#endif
}

TEST_CASE("half: arithmetic gives the nearest half to the exact result") {
  Tally tally;
  const auto try_pair = [&](half a, half b) {
    // Sums and products of halves are exact in double. A quotient is rounded to 53 bits first, which is
    // more than wide enough to leave the final rounding right.
    const double x = a, y = b;
    tally.expect_same(without_payload(a + b), nearest_or_nan(x + y), x);
    tally.expect_same(without_payload(a - b), nearest_or_nan(x - y), x);
    tally.expect_same(without_payload(a * b), nearest_or_nan(x * y), x);
    tally.expect_same(without_payload(a / b), nearest_or_nan(x / y), x);
  };
  for (const uint16_t a : special_bits) {
    for (const uint16_t b : special_bits) try_pair(half::from_bits(a), half::from_bits(b));
  }
  std::mt19937 random(2);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    try_pair(half::from_bits(static_cast<uint16_t>(bits)), half::from_bits(static_cast<uint16_t>(bits >> 16)));
  }
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = half::from_bits(static_cast<uint16_t>(i));
    tally.expect_same(without_payload(half(std::sqrt(h))), nearest_or_nan(std::sqrt(static_cast<double>(h))), i);
    tally.expect_same((-h).bits(), static_cast<uint16_t>(i ^ 0x8000), i);
    tally.expect_same((+h).bits(), static_cast<uint16_t>(i), i);
  }
  CHECK_TALLY(tally);
}

TEST_CASE("half: compound assignment rounds once, whatever the other side") {
  half h = 1.0f;
  h += 1_h;
  CHECK(h == 2);
  h *= 1.5f;
  CHECK(h == 3);
  h -= 0.5;
  CHECK(h == 2.5f);
  h /= 2;
  CHECK(h == 1.25f);
  // If 2^-11 + 2^-22 became a half first, it would lose the 2^-22 that breaks the tie.
  half sum = 1.0f;
  sum += 0x1p-11f + 0x1p-22f;
  CHECK(sum == 1 + halfgrad::half_epsilon);
  half wide = 1.0f;
  wide += 0x1p-11 + 0x1p-40;
  CHECK(wide == 1 + halfgrad::half_epsilon);
}

TEST_CASE("half: comparisons are those of IEEE 754") {
  Tally tally;
  const auto try_pair = [&](half a, half b) {
    const double x = value_of(a.bits()), y = value_of(b.bits());
    const bool right = (a == b) == (x == y) && (a != b) == (x != y) && (a < b) == (x < y) && (a <= b) == (x <= y) &&
                       (a > b) == (x > y) && (a >= b) == (x >= y) && (a <=> b) == (x <=> y);
    tally.expect(right, x);
  };
  for (const uint16_t a : special_bits) {
    for (const uint16_t b : special_bits) try_pair(half::from_bits(a), half::from_bits(b));
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    try_pair(half::from_bits(static_cast<uint16_t>(bits)), half::from_bits(static_cast<uint16_t>(bits >> 16)));
  }
  CHECK_TALLY(tally);
  CHECK(0_h == -0_h);
  CHECK(halfgrad::half_nan != halfgrad::half_nan);
  CHECK(2_h > 1.5f);
  CHECK(0.1_h != 0.1);  // a half is near 0.1, not equal to it
  CHECK(3 == 3_h);
}

TEST_CASE("half: numeric_limits") {
  using limits = std::numeric_limits<half>;
  using float_limits = std::numeric_limits<float>;
  static_assert(limits::is_specialized && limits::is_signed && !limits::is_integer && !limits::is_exact);
  static_assert(limits::is_iec559 && limits::has_infinity && limits::has_quiet_NaN && limits::radix == 2);
  static_assert(limits::round_style == float_limits::round_style && limits::traps == float_limits::traps);
  static_assert(std::numeric_limits<const half>::digits == 11);
  CHECK(limits::max() == 65504);
  CHECK(limits::lowest() == -65504);
  CHECK(limits::min() == 0x1p-14);
  CHECK(limits::denorm_min() == 0x1p-24);
  CHECK(limits::epsilon() == 0x1p-10);
  CHECK(limits::round_error() == 0.5);
  CHECK(isinf(limits::infinity()));
  CHECK(isnan(limits::quiet_NaN()));
  CHECK(isnan(limits::signaling_NaN()));
  CHECK(limits::signaling_NaN().bits() == 0x7D00);
  // The derived numbers, by the formulas of the C standard.
  CHECK(limits::min() == std::ldexp(1.0, limits::min_exponent - 1));
  CHECK(limits::max() == std::ldexp(1.0 - std::ldexp(1.0, -limits::digits), limits::max_exponent));
  CHECK(limits::digits10 == static_cast<int>((limits::digits - 1) * std::log10(2.0)));
  CHECK(limits::max_digits10 == static_cast<int>(std::ceil(1 + limits::digits * std::log10(2.0))));
  CHECK(limits::min_exponent10 == static_cast<int>(std::ceil(std::log10(0x1p-14))));
  CHECK(limits::max_exponent10 == static_cast<int>(std::log10(65504.0)));
}

TEST_CASE("half: printing") {
  const auto print = [](half h) {
    std::ostringstream text;
    text << h;
    return text.str();
  };
  CHECK(print(1.5_h) == "1.5");
  CHECK(print(halfgrad::half_max) == "65504");
  CHECK(print(0.1_h) == "0.0999756");
  CHECK(print(-0_h) == "-0");
  CHECK(print(halfgrad::half_infinity) == "inf");
  CHECK(print(halfgrad::half_nan) == "nan");
  // What is printed identifies the half.
  Tally tally;
  for (uint16_t bits = 0; bits < 0x7C00; ++bits) {
    tally.expect_same(half(std::stod(print(half::from_bits(bits)))).bits(), bits, bits);
  }
  CHECK_TALLY(tally);
}

TEST_CASE("half: literals, hash and storage") {
  CHECK((0.1_h).bits() == half(0.1).bits());
  CHECK((1e1000_h).bits() == 0x7C00);
  CHECK((1e-1000_h).bits() == 0);
  CHECK((65520_h).bits() == 0x7C00);
  if constexpr (std::numeric_limits<long double>::digits > 53) {
    // Above the tie by less than a double can tell.
    CHECK((1.000488281250000001_h).bits() == 0x3C01);
    CHECK((1.001464843749999999_h).bits() == 0x3C01);
  }
  CHECK((1.00048828125_h).bits() == 0x3C00);
  CHECK(std::hash<half>{}(0_h) == std::hash<half>{}(-0_h));
  std::unordered_set<half> all;
  for (uint32_t i = 0; i < 0x7C00; ++i) all.insert(half::from_bits(static_cast<uint16_t>(i)));
  CHECK(all.size() == 0x7C00);
  const std::vector<half> zeros(3);
  CHECK(zeros[1].bits() == 0);
  const std::array<half, 2> pair = {1_h, -2_h};
  std::array<uint16_t, 2> raw{};
  std::memcpy(raw.data(), pair.data(), sizeof raw);
  CHECK(raw[0] == 0x3C00);
  CHECK(raw[1] == 0xC000);
}
