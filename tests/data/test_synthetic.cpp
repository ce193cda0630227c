#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "data/synthetic.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::data;

namespace {

// Calls f(features, label) for every item and returns the number of items.
template <class F>
std::int64_t for_each_item(Data& data, F f) {
  std::int64_t n = 0;
  for (DataLoader* loader : {&data.train, &data.valid}) {
    for (const Batch& batch : *loader) {
      for (std::int64_t i = 0; i < batch.inputs[0].size(0); ++i, ++n) {
        f(batch.inputs[0][i].to_vector<double>(), batch.targets[0][i].item<int>());
      }
    }
  }
  return n;
}

}  // namespace

TEST_CASE("blobs are balanced clouds around their centres") {
  Data data = blobs({.n = 500, .features = 4, .classes = 5, .seed = 1, .batch_size = 50});
  CHECK(data.train.size() == 8);
  CHECK(data.valid.size() == 2);
  std::vector<int> count(5, 0);
  int nearest_is_own = 0;
  const double radius = 1.5 / std::sin(std::numbers::pi / 5);
  const auto n = for_each_item(data, [&](const std::vector<double>& x, int label) {
    REQUIRE(x.size() == 4);
    ++count[label];
    const double angle = 2 * std::numbers::pi * label / 5;
    nearest_is_own += std::hypot(x[0] - radius * std::cos(angle), x[1] - radius * std::sin(angle)) < 1.5;
  });
  CHECK(n == 500);
  CHECK(count == std::vector<int>(5, 100));
  CHECK(nearest_is_own > 480);  // three standard deviations in a plane: 98.9 %
}

TEST_CASE("spirals wind their classes around each other") {
  Data data = spirals({.n = 300, .classes = 3, .noise = 0, .seed = 2});
  const auto n = for_each_item(data, [&](const std::vector<double>& x, int label) {
    const double along = std::hypot(x[0], x[1]), angle = 2 * std::numbers::pi * (along + label / 3.0);
    CHECK(x[0] == doctest::Approx(along * std::cos(angle)).epsilon(1e-3).scale(1));
    CHECK(x[1] == doctest::Approx(along * std::sin(angle)).epsilon(1e-3).scale(1));
  });
  CHECK(n == 300);
}

TEST_CASE("synthetic data are the same for the same seed and refuse nonsense") {
  const auto first = [](std::uint64_t seed) {
    return blobs({.seed = seed}).train.begin()->inputs[0].to_vector<float>();
  };
  CHECK(first(3) == first(3));
  CHECK(first(3) != first(4));
  CHECK_THROWS_WITH_AS(blobs({.n = 4}), doctest::Contains("n is 4"), Error);
  CHECK_THROWS_WITH_AS(blobs({.classes = 1}), doctest::Contains("classes is 1"), Error);
  CHECK_THROWS_WITH_AS(blobs({.features = 1}), doctest::Contains("features is 1"), Error);
  CHECK_THROWS_WITH_AS(spirals({.classes = 0}), doctest::Contains("classes is 0"), Error);
}
