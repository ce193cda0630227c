#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::data;

using Indices = std::vector<std::int64_t>;

TEST_CASE("a TensorDataset gives the rows that are asked for, of all its tensors") {
  const Tensor a = arange(12, i64).view({4, 3});
  const Tensor b = arange(4, u8);
  const Tensor c = arange(8, f32).view({4, 1, 2});
  const TensorDataset dataset({a, b}, {c});
  CHECK(dataset.size() == 4);

  const Batch batch = dataset.get({3, 0, 3});
  REQUIRE(batch.inputs.size() == 2);
  REQUIRE(batch.targets.size() == 1);
  CHECK(batch.inputs[0].shape() == Shape{3, 3});
  CHECK(batch.inputs[0].to_vector<int>() == std::vector<int>{9, 10, 11, 0, 1, 2, 9, 10, 11});
  CHECK(batch.inputs[1].dtype() == u8);
  CHECK(batch.inputs[1].to_vector<int>() == std::vector<int>{3, 0, 3});
  CHECK(batch.targets[0].shape() == Shape{3, 1, 2});
  CHECK(batch.targets[0].to_vector<int>() == std::vector<int>{6, 7, 0, 1, 6, 7});
  CHECK(dataset.get({}).inputs[0].shape() == Shape{0, 3});
}

TEST_CASE("a TensorDataset takes one input, with a target or without, in any memory order") {
  const Tensor x = arange(6, i64).view({2, 3}).t();  // rows of 2
  CHECK(TensorDataset(x).get({1}).targets.empty());
  CHECK(TensorDataset(x).get({1}).inputs[0].to_vector<int>() == std::vector<int>{1, 4});
  CHECK(TensorDataset(x, arange(3, i64)).get({2}).targets[0].item<int>() == 2);
}

TEST_CASE("changing a batch leaves the dataset alone") {
  const TensorDataset dataset(arange(4, f32));
  dataset.get({0, 1, 2, 3}).inputs[0].zero_();
  CHECK(dataset.get({3}).inputs[0].item() == 3);
}

TEST_CASE("a TensorDataset refuses tensors that do not belong together, and items it does not have") {
  const Tensor x = zeros({4, 3});
  CHECK_THROWS_WITH_AS(TensorDataset(x, zeros({3})),
                       doctest::Contains("input 0 has 4 rows, but target 0 has shape [3]"), Error);
  CHECK_THROWS_WITH_AS(TensorDataset({x, zeros({5, 3})}, {}), doctest::Contains("input 1 has shape [5, 3]"), Error);
  CHECK_THROWS_WITH_AS(TensorDataset(Tensors{}, Tensors{}), doctest::Contains("no inputs"), Error);
  CHECK_THROWS_WITH_AS(TensorDataset(zeros({})), doctest::Contains("a single number"), Error);
  CHECK_THROWS_WITH_AS(TensorDataset{Tensor()}, doctest::Contains("undefined"), Error);
  const TensorDataset dataset(x);
  CHECK_THROWS_WITH_AS(dataset.get({0, 4}), doctest::Contains("item 4 was asked for, but there are 4"), Error);
  CHECK_THROWS_AS(dataset.get({-1}), Error);
}

TEST_CASE("a Subset renumbers the items of a dataset") {
  const auto dataset = std::make_shared<TensorDataset>(arange(10, i64));
  const Subset subset(dataset, {7, 2, 5});
  CHECK(subset.size() == 3);
  CHECK(subset.get({2, 0}).inputs[0].to_vector<int>() == std::vector<int>{5, 7});
  CHECK_THROWS_WITH_AS(subset.get({3}), doctest::Contains("item 3 was asked for, but there are 3"), Error);
  CHECK_THROWS_AS(Subset(dataset, {10}), Error);
  CHECK_THROWS_AS(Subset(nullptr, {}), Error);
}

TEST_CASE("random_split gives every item to exactly one part, the same for the same seed") {
  const auto dataset = std::make_shared<TensorDataset>(arange(100, i64));
  const std::vector<Subset> parts = random_split(dataset, {70, 0, 30}, 5);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size() == 70);
  CHECK(parts[1].size() == 0);
  Indices all = parts[0].indices();
  all.insert(all.end(), parts[2].indices().begin(), parts[2].indices().end());
  CHECK_FALSE(std::is_sorted(all.begin(), all.end()));
  CHECK(random_split(dataset, {70, 0, 30}, 5)[2].indices() == parts[2].indices());
  CHECK(random_split(dataset, {70, 0, 30}, 6)[2].indices() != parts[2].indices());
  std::sort(all.begin(), all.end());
  for (std::int64_t i = 0; i < 100; ++i) CHECK(all[static_cast<std::size_t>(i)] == i);

  CHECK_THROWS_WITH_AS(random_split(dataset, {70, 31}), doctest::Contains("more than the 100 items"), Error);
  CHECK_THROWS_WITH_AS(random_split(dataset, {70, 29}), doctest::Contains("add up to 99"), Error);
  CHECK_THROWS_AS(random_split(dataset, {101, -1}), Error);
}
