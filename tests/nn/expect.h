#pragma once
// What the tests of nn and of the losses share.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace halfgrad::testing {

/// x has these values in row-major order, each within `tolerance` (absolute, and relative for values above
/// 1).
inline void check_values(const Tensor& x, const std::vector<double>& expected, double tolerance = 0) {
  const std::vector<double> found = x.to_vector<double>();
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CAPTURE(found[i]);
    CAPTURE(expected[i]);
    CHECK((std::isnan(expected[i])
               ? std::isnan(found[i])
               : std::abs(found[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))));
  }
}

/// The same shape, dtype and bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  const auto bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  return std::string(static_cast<const char*>(x.raw_data()), bytes) ==
         std::string(static_cast<const char*>(y.raw_data()), bytes);
}

/// The message of the Error that f throws, "" when it throws none.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace halfgrad::testing
