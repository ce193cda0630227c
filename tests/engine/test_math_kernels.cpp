// The vector functions of the CPU kernels, at floats all over the number line. tests/slow/ has the same for all floats.

#include <doctest/doctest.h>

#include <bit>
#include <limits>

#include "engine/ops/elementwise.h"
#include "engine/tensor.h"
#include "tests/engine/kernel_testing.h"
#include "tests/engine/math_functions.h"

using namespace halfgrad;

namespace {

// 1 in 1009 floats (a prime: all bits vary), and those around 0, the limits of numbers and what the functions tell apart.
std::vector<float> floats_all_over() {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < 0x1p32; bits += 1009)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float edge : {0.0F,
                           0x1p-149F,
                           0x1p-126F,
                           0x1p-25F,
                           0.5F,
                           0.625F,
                           0.8F,
                           1.13F,
                           2.0F / 3,
                           1.0F,
                           4.0F / 3,
                           10.05F,
                           11.0F,
                           15.5F,
                           17.5F,
                           88.72284F,
                           103.97F,
                           104.0F,
                           8192.0F,
                           0x1p23F,
                           0x1p24F,
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()})
    for (int step = -8; step <= 8; ++step) {
      const float near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(edge) + static_cast<std::uint32_t>(step));
      x.push_back(near);
      x.push_back(-near);
    }
  return x;
}

}  // namespace

TEST_CASE("functions of vectors are as exact as math.h says, with the same bits on every instruction set") {
  const std::vector<float> x = floats_all_over();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> y(x.size()), other(x.size());
  for (const testing::MathFunction& f : testing::kMathFunctions) {
    CAPTURE(f.name);
    testing::evaluate(*cpu::kernels_for("baseline"), f, x.data(), y.data(), n);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (const double error = testing::error_in_ulps(y[i], f.exact(x[i])); !(error <= worst)) worst = error, at = x[i];
    CAPTURE(at);
    CHECK(worst <= f.ulps);
    testing::for_each_isa([&](const char* isa) {
      CAPTURE(isa);
      testing::evaluate(cpu::kernels(), f, x.data(), other.data(), n);
      std::int64_t different = 0;
      for (std::size_t i = 0; i < x.size(); ++i)  // a NaN may be any
        different += std::bit_cast<std::uint32_t>(y[i]) != std::bit_cast<std::uint32_t>(other[i]) && y[i] == y[i];
      CHECK(different == 0);
    });
  }
}

TEST_CASE("functions of f16 are those of f32, rounded once, for every half") {
  std::vector<half> x;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) x.push_back(half::from_bits(static_cast<std::uint16_t>(bits)));
  const Tensor halves = from_vector(x), floats = cast(halves, f32);
  testing::for_each_isa([&](const char* isa) {
    CAPTURE(isa);
    for (const auto f : {exp, expm1, log, log1p, sin, cos, tanh, erf, erfc, sigmoid, gelu, silu}) {
      const std::vector<half> y = f(halves).to_vector<half>(), expected = cast(f(floats), f16).to_vector<half>();
      std::int64_t different = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        different += y[i].bits() != expected[i].bits() && !(isnan(y[i]) && isnan(expected[i]));
      CHECK(different == 0);
    }
  });
}
