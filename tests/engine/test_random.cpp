#include "engine/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "engine/error.h"
#include "engine/half.h"
#include "engine/philox.h"

using halfgrad::Generator;
using halfgrad::PhiloxBlock;
using halfgrad::random_block;

namespace {

constexpr bool same(PhiloxBlock a, PhiloxBlock b) {
  return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1] && a.lane[2] == b.lane[2] && a.lane[3] == b.lane[3];
}

// The 32 random bits of element i of a fill that starts at `offset`.
uint32_t element(uint64_t seed, uint64_t offset, uint64_t i) { return random_block(seed, offset + i / 4).lane[i % 4]; }

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};

Moments moments_of(const std::vector<double>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const double x : values) m.mean += x / n;
  for (const double x : values) {
    const double d = x - m.mean;
    m.variance += d * d / n;
    m.skewness += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  m.skewness /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  return m;
}

// Pearson's statistic for counts that should all be equal. With k counts it has mean k - 1 and standard
// deviation sqrt(2 (k - 1)).
double chi_square(const std::vector<int64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t count : counts) {
    const double d = static_cast<double>(count) - expected;
    sum += d * d / expected;
  }
  return sum;
}

void check_even(const std::vector<int64_t>& counts) {
  const auto freedom = static_cast<double>(counts.size() - 1);
  const double deviation = (chi_square(counts) - freedom) / std::sqrt(2 * freedom);
  CHECK(std::abs(deviation) < 4);  // neither uneven nor suspiciously even
}

}  // namespace

TEST_CASE("philox: known answers of the authors' Random123") {
  using halfgrad::philox4x32_10;
  // Also at compile time.
  static_assert(same(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}), {{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}}));
  constexpr uint32_t ones = 0xFFFFFFFF;
  CHECK(same(philox4x32_10({{ones, ones, ones, ones}}, {{ones, ones}}),
             {{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}}));
  // The digits of pi.
  CHECK(same(philox4x32_10({{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}}, {{0xA4093822, 0x299F31D0}}),
             {{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}}));
  // How seed, counter and variant are laid out.
  CHECK(same(random_block(0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E),
             {{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}}));
}

TEST_CASE("philox: uniform numbers are in [0, 1) and spread evenly") {
  using halfgrad::uniform_double;
  using halfgrad::uniform_float;
  CHECK(uniform_float(0) == 0);
  CHECK(uniform_float(0xFFFFFFFF) == 1 - 0x1p-24f);
  CHECK(uniform_float(0x80000000) == 0.5f);
  CHECK(halfgrad::half(uniform_float(0xFFFFFFFF, 11)) == 1 - 0x1p-11f);
  CHECK(halfgrad::half(uniform_float(0xFFFFFFFF)) == 1);  // why there is `digits`
  CHECK(uniform_double(0, 0) == 0);
  CHECK(uniform_double(0xFFFFFFFF, 0xFFFFFFFF) == 1 - 0x1p-53);
  CHECK(uniform_double(0, 0xFFFFFFFF) == 0x1p-27 - 0x1p-53);

  constexpr uint64_t n = 400000;
  std::vector<double> values(n);
  std::vector<int64_t> counts(1000);
  for (uint64_t i = 0; i < n; ++i) {
    values[i] = static_cast<double>(uniform_float(element(42, 0, i)));
    ++counts[static_cast<std::size_t>(values[i] * 1000)];
  }
  const Moments m = moments_of(values);
  CHECK(m.mean == doctest::Approx(0.5).epsilon(0.005));
  CHECK(m.variance == doctest::Approx(1.0 / 12).epsilon(0.01));
  check_even(counts);
  // Neighbours are not correlated.
  double covariance = 0;
  for (uint64_t i = 1; i < n; ++i) covariance += (values[i] - 0.5) * (values[i - 1] - 0.5) / n;
  CHECK(std::abs(covariance * 12) < 4 / std::sqrt(n));
}

TEST_CASE("philox: normal numbers") {
  using halfgrad::normal_pair;
  SUBCASE("agree with the formula in double") {
    double worst = 0;
    const auto compare = [&](uint32_t a, uint32_t b) {
      const auto u = static_cast<double>(static_cast<float>(static_cast<uint64_t>(a) + 1)) * 0x1p-32;
      const double radius = std::sqrt(-2 * std::log(u));
      const double angle = 2 * std::acos(-1.0) * b * 0x1p-32;
      const auto [first, second] = normal_pair(a, b);
      worst = std::max({worst, std::abs(static_cast<double>(first) - radius * std::cos(angle)),
                        std::abs(static_cast<double>(second) - radius * std::sin(angle))});
    };
    for (uint64_t i = 0; i < 200000; ++i) compare(element(7, 0, 2 * i), element(7, 0, 2 * i + 1));
    for (const uint32_t a : {0U, 1U, 2U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFF00U, 0xFFFFFFFFU}) {
      for (uint32_t eighth = 0; eighth < 8; ++eighth) {
        for (const uint32_t step : {0U, 1U, 0xFFFFFFFFU}) compare(a, (eighth << 29) + step);
      }
    }
    CHECK(worst < 1e-6);
  }
  SUBCASE("the ends of the range are finite") {
    CHECK(normal_pair(0, 0).first == doctest::Approx(std::sqrt(64 * std::log(2.0))));
    CHECK(normal_pair(0, 0).second == 0);
    CHECK(normal_pair(0xFFFFFFFF, 12345).first == 0);
    CHECK(normal_pair(0, 0x80000000).first == -normal_pair(0, 0).first);
    CHECK(normal_pair(0, 0x40000000).second == normal_pair(0, 0).first);
  }
  SUBCASE("the same bits on every machine") {
    CHECK(normal_pair(0, 0).first == 0x1.aa449ap+2f);
    CHECK(normal_pair(0x12345678, 0x9ABCDEF0).first == -0x1.d25e7p+0f);
    CHECK(normal_pair(0x12345678, 0x9ABCDEF0).second == -0x1.672702p+0f);
    CHECK(normal_pair(0xFEDCBA98, 0x76543210).first == -0x1.77c38p-4f);
    CHECK(normal_pair(0xFEDCBA98, 0x76543210).second == 0x1.6ba09p-6f);
  }
  SUBCASE("are distributed normally") {
    constexpr uint64_t n = 400000;
    std::vector<double> values;
    // 100 classes of equal probability, found by the distribution function.
    std::vector<int64_t> counts(100);
    double covariance = 0;
    for (uint64_t i = 0; i < n; i += 2) {
      const auto [first, second] = normal_pair(element(42, 0, i), element(42, 0, i + 1));
      for (const float x : {first, second}) {
        values.push_back(static_cast<double>(x));
        const double probability = std::erfc(-values.back() / std::sqrt(2.0)) / 2;
        ++counts[std::min<std::size_t>(static_cast<std::size_t>(probability * 100), 99)];
      }
      covariance += static_cast<double>(first) * static_cast<double>(second) / (n / 2);
    }
    const Moments m = moments_of(values);
    // Within four standard errors.
    CHECK(std::abs(m.mean) < 4 * std::sqrt(1.0 / n));
    CHECK(std::abs(m.variance - 1) < 4 * std::sqrt(2.0 / n));
    CHECK(std::abs(m.skewness) < 4 * std::sqrt(6.0 / n));
    CHECK(std::abs(m.kurtosis - 3) < 4 * std::sqrt(24.0 / n));
    CHECK(std::abs(covariance) < 4 / std::sqrt(n / 2.0));
    check_even(counts);
  }
}

TEST_CASE("philox: integers below a bound") {
  using halfgrad::uniform_below;
  SUBCASE("are evenly spread") {
    for (const uint64_t bound : {2U, 3U, 7U, 10U, 1000U}) {
      std::vector<int64_t> counts(bound);
      for (uint64_t i = 0; i < 100000; ++i) ++counts.at(uniform_below(5, 0, i, bound));
      check_even(counts);
    }
  }
  SUBCASE("have no bias where a quarter of the draws is rejected") {
    // Without rejection, every third result would be twice as likely as the others.
    const uint64_t bound32 = uint64_t{3} << 30, bound64 = uint64_t{3} << 62;
    for (const uint64_t bound : {bound32, bound64}) {
      std::vector<int64_t> thirds(3), residues(3);  // at() throws for a result out of range
      for (uint64_t i = 0; i < 100000; ++i) {
        const uint64_t x = uniform_below(6, 0, i, bound);
        ++thirds.at(x / (bound / 3));
        ++residues.at(x % 3);
      }
      check_even(thirds);
      check_even(residues);
    }
  }
  SUBCASE("at the ends of the range") {
    CHECK(uniform_below(1, 0, 0, 1) == 0);
    // All of 32 bits: the lane itself. One more needs 64 bits.
    CHECK(uniform_below(1, 10, 6, uint64_t{1} << 32) == element(1, 10, 6));
    CHECK(uniform_below(1, 0, 0, (uint64_t{1} << 32) + 1) <= uint64_t{1} << 32);
    CHECK(uniform_below(1, 0, 0, ~uint64_t{0}) < ~uint64_t{0});
  }
  SUBCASE("depend on their own element only") {
    for (uint64_t i = 0; i < 100; ++i) {
      CHECK(uniform_below(6, 50, i, uint64_t{3} << 30) == uniform_below(6, 50 + i / 4, i % 4, uint64_t{3} << 30));
    }
  }
}

TEST_CASE("Generator: reserve hands out each counter once") {
  Generator generator(3);
  CHECK(generator.seed() == 3);
  CHECK(generator.reserve(10) == 0);
  CHECK(generator.reserve(0) == 10);
  CHECK(generator.reserve(1) == 10);
  CHECK(generator.state() == halfgrad::GeneratorState{.seed = 3, .offset = 11});
  // Single numbers take one counter each.
  CHECK(generator.next_uint32() == random_block(3, 11).lane[0]);
  const double uniform = generator.next_uniform();
  CHECK(uniform == halfgrad::uniform_double(random_block(3, 12).lane[0], random_block(3, 12, 1).lane[0]));
  CHECK(generator.next_below(1000) == halfgrad::uniform_below(3, 13, 0, 1000));
  CHECK(generator.state().offset == 14);
}

TEST_CASE("Generator: seeds and states") {
  Generator a(1), b(1), c(2);
  for (int i = 0; i < 10; ++i) {
    const uint32_t x = a.next_uint32();
    CHECK(x == b.next_uint32());
    CHECK(x != c.next_uint32());
  }
  // A restored state goes on with the same numbers, in another generator too.
  const halfgrad::GeneratorState saved = a.state();
  std::vector<uint64_t> first;
  for (int i = 0; i < 10; ++i) first.push_back(a.next_below(1000000));
  c.set_state(saved);
  for (const uint64_t x : first) CHECK(c.next_below(1000000) == x);
  CHECK(c.seed() == 1);
  // Seeding starts over.
  a.manual_seed(1);
  CHECK(a.state() == Generator(1).state());
  // All 64 bits of the seed count.
  CHECK(Generator(uint64_t{1} << 32).next_uint32() != Generator(0).next_uint32());

  const halfgrad::GeneratorState before = halfgrad::default_generator().state();
  halfgrad::manual_seed(77);
  CHECK(halfgrad::default_generator().state() == Generator(77).state());
  halfgrad::default_generator().set_state(before);
}

TEST_CASE("Generator: a bound of zero is an error") {
  Generator generator;
  CHECK_THROWS_AS(generator.next_below(0), halfgrad::Error);
  CHECK(generator.state().offset == 0);
}

TEST_CASE("random_permutation: is one, reproducible, and each is equally likely") {
  Generator generator(9);
  for (const int64_t n : {0, 1, 2, 10, 1000}) {
    std::vector<int64_t> order = halfgrad::random_permutation(n, generator);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), int64_t{0});
    CHECK(order == all);
  }
  CHECK_THROWS_AS(halfgrad::random_permutation(-1, generator), halfgrad::Error);

  Generator again(9), same_seed(9);
  CHECK(halfgrad::random_permutation(100, again) == halfgrad::random_permutation(100, same_seed));
  CHECK(halfgrad::random_permutation(100, again) != halfgrad::random_permutation(100, generator));

  std::map<std::vector<int64_t>, int64_t> seen;
  for (int i = 0; i < 24000; ++i) ++seen[halfgrad::random_permutation(4, generator)];
  CHECK(seen.size() == 24);
  std::vector<int64_t> counts;
  for (const auto& [order, count] : seen) counts.push_back(count);
  check_even(counts);
}
