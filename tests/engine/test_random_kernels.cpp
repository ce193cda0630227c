// Random fills on the CPU: the numbers that philox.h defines, in every type and layout.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/cpu/parallel.h"
#include "engine/philox.h"
#include "engine/random.h"
#include "engine/tensor.h"
#include "tests/engine/kernel_testing.h"

using namespace halfgrad;

namespace {

Tensor fill(Distribution kind, const Shape& shape, DType dtype, double a, double b, std::uint64_t seed = 7,
            std::uint64_t offset = 5) {
  Tensor y = empty(shape, dtype);
  backend_for(y.device()).random(kind, y.view_of_data(), a, b, seed, offset);
  return y;
}

constexpr Distribution kKinds[] = {Distribution::uniform, Distribution::normal, Distribution::bernoulli};

// D of Kolmogorov and Smirnov: the largest distance between the values' distribution and `cdf`.
template <class F>
double largest_distance(std::vector<double> values, F&& cdf) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]), below = static_cast<double>(i);
    largest = std::max({largest, p - below / n, (below + 1) / n - p});
  }
  return largest;
}

// Correlation of neighbours, times sqrt(n): standard normal if they are independent.
double serial_correlation(const std::vector<double>& values, double mean, double variance) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) sum += (values[i] - mean) * (values[i + 1] - mean);
  return sum / variance / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("element i has the bits of lane i % 4 at counter offset + i / 4") {
  const std::int64_t n = 1003;
  const std::vector<float> floats = fill(Distribution::uniform, {n}, f32, 0, 1).to_vector<float>();
  const std::vector<half> halves = fill(Distribution::uniform, {n}, f16, 0, 1).to_vector<half>();
  const std::vector<double> doubles = fill(Distribution::uniform, {n}, f64, 0, 1).to_vector<double>();
  const std::vector<float> normals = fill(Distribution::normal, {n}, f32, 0, 1).to_vector<float>();
  const std::vector<float> flips = fill(Distribution::bernoulli, {n}, f32, 0.3, 0).to_vector<float>();
  for (std::size_t i = 0; i < n; ++i) {
    const PhiloxBlock block = random_block(7, 5 + i / 4), next = random_block(7, 5 + i / 4, 1);
    const std::uint32_t bits = block.lane[i % 4];
    REQUIRE(floats[i] == uniform_float(bits));
    REQUIRE(static_cast<float>(halves[i]) == uniform_float(bits, 11));
    REQUIRE(doubles[i] == uniform_double(bits, next.lane[i % 4]));
    const NormalPair pair = normal_pair(block.lane[i % 4 / 2 * 2], block.lane[i % 4 / 2 * 2 + 1]);
    REQUIRE(normals[i] == (i % 2 == 0 ? pair.first : pair.second));
    REQUIRE(flips[i] == (bits < 0.3 * 0x1p32 ? 1 : 0));
  }
}

TEST_CASE("a fill gives the same bits on every instruction set and with any number of threads") {
  const Shape shape = {50001};  // several chunks, and a rest
  const int threads = cpu::num_threads();
  for (const Distribution kind : kKinds)
    for (const DType dtype : {f16, f32, f64}) {
      const std::vector<double> expected = fill(kind, shape, dtype, 0.25, 3).to_vector<double>();
      testing::for_each_isa([&](const char* isa) {
        CAPTURE(isa);
        for (const int n : {1, 2}) {
          cpu::set_num_threads(n);
          CHECK(fill(kind, shape, dtype, 0.25, 3).to_vector<double>() == expected);
        }
      });
      cpu::set_num_threads(threads);
    }
}

TEST_CASE("f16 numbers are the f32 numbers, rounded once") {
  const std::vector<float> normals = fill(Distribution::normal, {5000}, f32, 0.5, 2).to_vector<float>();
  const std::vector<half> halves = fill(Distribution::normal, {5000}, f16, 0.5, 2).to_vector<half>();
  for (std::size_t i = 0; i < normals.size(); ++i) REQUIRE(halves[i].bits() == half(normals[i]).bits());
}

TEST_CASE("uniform numbers stay in [a, b) in every type") {
  struct Range {
    double a, b;
  };
  // Where the spacing of numbers grows, a + u * (b - a) rounds up to b for the largest u; 0.1 and 0.3 are no
  // numbers of any type, and the spacing of halves at 1000 is 0.5.
  for (const Range& range : {Range{0, 1}, {1, 2}, {-1, 0}, {0.1, 0.3}, {-3, 3}, {1000, 1003}, {-1e-7, 1e-7}})
    for (const DType dtype : {f16, f32, f64}) {
      CAPTURE(range.a);
      CAPTURE(range.b);
      CAPTURE(name_of(dtype));
      const std::vector<double> values = fill(Distribution::uniform, {200000}, dtype, range.a, range.b).to_vector<double>();
      const auto [min, max] = std::minmax_element(values.begin(), values.end());
      CHECK(*min >= range.a);
      CHECK(*max < range.b);
      CHECK(*max > *min);
    }
  // The largest number of 11 bits comes up, and is not rounded up to 1.
  const std::vector<double> halves = fill(Distribution::uniform, {200000}, f16, 0, 1).to_vector<double>();
  CHECK(*std::max_element(halves.begin(), halves.end()) == 1 - 0x1p-11);
  // An empty range, or one without any half in it, gives the nearest there is.
  CHECK(fill(Distribution::uniform, {9}, f32, 2, 2).to_vector<double>() == std::vector<double>(9, 2));
  CHECK(fill(Distribution::uniform, {9}, f16, 1000.1, 1000.2).to_vector<double>() == std::vector<double>(9, 1000));
}

TEST_CASE("numbers follow row-major order whatever the memory order, and nothing else is written") {
  const Shape shape = {6, 5, 7, 9};
  for (const Distribution kind : kKinds)
    for (const DType dtype : {f16, f32, f64}) {
      const std::vector<double> expected = fill(kind, shape, dtype, 0.25, 3).to_vector<double>();
      testing::Array array(dtype, shape, {0, 2, 3, 1}, 3);
      backend_for(Device::cpu()).random(kind, array.view, 0.25, 3, 7, 5);
      std::vector<double> actual;
      array.for_each([&](std::int64_t at) { actual.push_back(array.get(at)); });
      CHECK(actual == expected);
      CHECK(array.gaps_untouched());
    }
}

TEST_CASE("bernoulli fills bool and integer tensors too") {
  const std::vector<double> expected = fill(Distribution::bernoulli, {1000}, f32, 0.3, 0).to_vector<double>();
  for (const DType dtype : {boolean, u8, i32, i64})
    CHECK(fill(Distribution::bernoulli, {1000}, dtype, 0.3, 0).to_vector<double>() == expected);
  CHECK(fill(Distribution::bernoulli, {1000}, f16, 0, 0).to_vector<double>() == std::vector<double>(1000, 0));
  CHECK(fill(Distribution::bernoulli, {1000}, f16, 1, 0).to_vector<double>() == std::vector<double>(1000, 1));
}

TEST_CASE("fills have the moments and the distribution that they claim") {
  constexpr std::int64_t n = 1 << 20;
  const double root = std::sqrt(static_cast<double>(n));
  const auto mean_of = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double x : values) sum += x;
    return sum / static_cast<double>(values.size());
  };
  // Bounds: 4 standard errors of a mean (one in 16,000 seeds would fail), 1.95 / sqrt(n) for D (one in
  // 1,000).
  for (const DType dtype : {f32, f64}) {
    const std::vector<double> uniform = fill(Distribution::uniform, {n}, dtype, -1, 3).to_vector<double>();
    const double variance = 16.0 / 12;
    CHECK(std::abs(mean_of(uniform) - 1) < 4 * std::sqrt(variance) / root);
    CHECK(std::abs(serial_correlation(uniform, 1, variance)) < 4);
    CHECK(largest_distance(uniform, [](double x) { return (x + 1) / 4; }) < 1.95 / root);

    std::vector<double> normal = fill(Distribution::normal, {n}, dtype, 2, 3).to_vector<double>();
    CHECK(std::abs(mean_of(normal) - 2) < 4 * 3 / root);
    CHECK(std::abs(serial_correlation(normal, 2, 9)) < 4);
    CHECK(largest_distance(normal, [](double x) { return 0.5 * std::erfc(-(x - 2) / 3 / std::sqrt(2.0)); }) <
          1.95 / root);
    for (double& x : normal) x = (x - 2) * (x - 2);
    CHECK(std::abs(mean_of(normal) - 9) < 4 * std::sqrt(2.0) * 9 / root);  // the variance of z^2 is 2
  }
  const double p = 0.3;
  const std::vector<double> flips = fill(Distribution::bernoulli, {n}, f32, p, 0).to_vector<double>();
  CHECK(std::abs(mean_of(flips) - p) < 4 * std::sqrt(p * (1 - p)) / root);
}

TEST_CASE("fills of tensors take their numbers from the default generator, one after the other") {
  manual_seed(3);
  const std::vector<double> a = rand({10}).to_vector<double>(), b = rand({10}).to_vector<double>();
  CHECK(a != b);
  CHECK(default_generator().state().offset == 6);
  manual_seed(3);
  CHECK(rand({10}).to_vector<double>() == a);
  CHECK(rand({10}).to_vector<double>() == b);
}
