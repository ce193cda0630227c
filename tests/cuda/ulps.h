#pragma once
// How far two results may be apart, in units of the last place.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>

#include "engine/dtype.h"
#include "engine/math.h"

namespace halfgrad::testing {

// How far a GPU's functions may be from the CPU's. In f32 and f16 not at all: both compile engine/math.h, and what is made
// of its functions. What is left to a library is pow, and the sine and cosine of large angles: a GPU rounds a double's, which
// is one unit from the CPU's at most. And all of f64: the emulation calls the CPU's library, and must give its bits; for a
// GPU's library these are the errors that the CUDA programming guide lists, plus one for the CPU's.
inline const std::map<std::string, std::uint64_t> kFunctions = {
    {"cos", 3},   {"elu", 3}, {"erf", 3},     {"erfc", 6}, {"exp", 2}, {"expm1", 2},    {"gelu", 6}, {"log", 2},
    {"log1p", 2}, {"pow", 5}, {"sigmoid", 4}, {"silu", 4}, {"sin", 3}, {"softplus", 4}, {"tanh", 3},
};
constexpr std::uint64_t kUlpsOfLibrary = 1;

/// At x, where that matters.
inline std::uint64_t ulps_of_function(const std::string& name, DType dtype, double x = 0) {
  const bool is_emulated = std::getenv("HALFGRAD_CUDA_MODULE") != nullptr;
  const bool is_large_angle = (name == "sin" || name == "cos") && std::abs(x) > math::kLargestAngle;
  if (dtype != f64) return name == "pow" || is_large_angle ? kUlpsOfLibrary : 0;
  return is_emulated ? 0 : kFunctions.at(name);
}

/// The numbers of a type in their order: neighbours are 1 apart, and both zeros are 0.
inline std::int64_t in_order(half x) {
  return x.bits() & 0x8000 ? -std::int64_t{x.bits() & 0x7FFF} : std::int64_t{x.bits()};
}
inline std::int64_t in_order(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits >> 31 ? -static_cast<std::int64_t>(bits & 0x7FFFFFFF) : static_cast<std::int64_t>(bits);
}
inline std::int64_t in_order(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return bits >> 63 ? -static_cast<std::int64_t>(bits & INT64_MAX) : static_cast<std::int64_t>(bits);
}

/// a and b are equal, both NaN, or of one sign and no more than `ulps` apart.
template <class T>
bool agree_in_ulps(T a, T b, std::uint64_t ulps) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    const std::int64_t p = in_order(a), q = in_order(b);
    return std::signbit(x) == std::signbit(y) && static_cast<std::uint64_t>(p > q ? p - q : q - p) <= ulps;
  }
}

}  // namespace halfgrad::testing
