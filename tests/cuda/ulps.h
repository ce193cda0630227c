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

namespace halfgrad::testing {

// The functions of <cmath>, and what is made of them, are not the same everywhere. For each the largest difference between
// CPU and GPU in f32 and f64:
// - to the emulation, which calls the C library's functions. Each side may be wrong by about one, and by two in the worst
//   case; the CPU's erfc by four, and so gelu, which multiplies it by x / 2. Found with two million numbers.
// - to a GPU: the errors that the CUDA programming guide lists, plus one for the CPU's.
struct FunctionUlps {
  std::uint64_t emulated, gpu;
};
inline const std::map<std::string, FunctionUlps> kFunctions = {
    {"cos", {2, 3}},     {"elu", {2, 3}},  {"erf", {2, 3}}, {"erfc", {4, 6}},     {"exp", {2, 2}},
    {"expm1", {2, 2}},   {"gelu", {5, 6}}, {"log", {2, 2}}, {"log1p", {2, 2}},    {"pow", {2, 5}},
    {"sigmoid", {2, 4}}, {"silu", {3, 4}}, {"sin", {2, 3}}, {"softplus", {2, 4}}, {"tanh", {2, 3}},
};
constexpr std::uint64_t kUlpsOfHalf = 1;  // a half that lies near the middle of two may be rounded either way

inline std::uint64_t ulps_of_function(const std::string& name, DType dtype) {
  if (dtype == f16) return kUlpsOfHalf;
  const FunctionUlps& ulps = kFunctions.at(name);
  return std::getenv("HALFGRAD_CUDA_MODULE") ? ulps.emulated : ulps.gpu;
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
