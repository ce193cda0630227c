#include <doctest/doctest.h>

#include "engine/ops/elementwise.h"
#include "engine/tensor.h"

using namespace halfgrad;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& x) { return x.to_vector<double>(); }
Tensor cube() { return arange(0, 24).view({2, 3, 4}); }
}  // namespace

TEST_CASE("view shares storage, infers -1 and refuses what needs a copy") {
  Tensor x = arange(0, 6);
  Tensor y = x.view({2, -1});
  CHECK(y.shape() == Shape{2, 3});
  y.select(0, 0).fill_(9);
  CHECK(values(x) == Values{9, 9, 9, 3, 4, 5});
  CHECK(x.view({1, 6, 1}).shape() == Shape{1, 6, 1});
  CHECK(values(x.view({3, 2}).t().reshape({6})) == Values{9, 9, 4, 9, 3, 5});
  CHECK_THROWS_WITH_AS(x.view({3, 2}).t().view({6}), doctest::Contains("use reshape"), Error);
  CHECK_THROWS_AS(x.view({4, -1}), Error);
  CHECK_THROWS_AS(x.view({-1, -1}), Error);
  CHECK_THROWS_AS(x.view({5}), Error);
  CHECK_THROWS_AS(x.view({-6}), Error);
  CHECK(zeros({0, 3}).view({3, 0}).shape() == Shape{3, 0});
  CHECK_THROWS_AS(zeros({0, 3}).view({0, -1}), Error);
  CHECK(zeros({}).view({1, 1}).shape() == Shape{1, 1});
}

TEST_CASE("a strided tensor can be viewed where its dimensions lie dense") {
  const Tensor x = cube().slice(1, 0, 2);  // [2, 2, 4], rows dense, planes apart
  CHECK(x.view({2, 8}).shares_storage(x));
  CHECK(values(x.view({2, 8})) == values(x));
  CHECK_THROWS_AS(x.view({16}), Error);
  CHECK(values(x.reshape({16})) == values(x));
  const Tensor columns = cube().slice(2, 0, 4, 2);  // every other column: stride 2
  CHECK(values(columns.view({6, 2})) == values(columns));
  CHECK(values(columns.reshape({12})) == values(columns));
  CHECK(columns.view({12}).strides() == Shape{2});
}

TEST_CASE("permute and transpose") {
  const Tensor x = cube();
  const Tensor y = x.permute({2, 0, -2});
  CHECK(y.shape() == Shape{4, 2, 3});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) CHECK(y[k][i][j].item() == x[i][j][k].item());
  CHECK(x.transpose(0, -1).shape() == Shape{4, 3, 2});
  CHECK_THROWS_AS(x.permute({0, 1}), Error);
  CHECK_THROWS_WITH_AS(x.permute({0, 0, 1}), doctest::Contains("names dimension 0 twice"), Error);
  CHECK_THROWS_AS(x.t(), Error);
  CHECK(arange(0, 3).t().shape() == Shape{3});
}

TEST_CASE("slices step, clamp and count from the end") {
  const Tensor x = arange(0, 10);
  CHECK(values(x.slice(0, 2, 5)) == Values{2, 3, 4});
  CHECK(values(x.slice(0, 1, 8, 3)) == Values{1, 4, 7});
  CHECK(values(x.slice(0, -3)) == Values{7, 8, 9});
  CHECK(values(x.slice(0, 0, -8)) == Values{0, 1});
  CHECK(values(x.slice(0, -100, 100, 4)) == Values{0, 4, 8});
  CHECK(x.slice(0, 5, 3).numel() == 0);
  CHECK(x.slice(0, 100).numel() == 0);
  CHECK_THROWS_WITH_AS(x.slice(0, 0, 5, 0), doctest::Contains("use flip"), Error);
  CHECK_THROWS_AS(x.slice(1, 0), Error);
  CHECK(values(x.narrow(0, 3, 2)) == Values{3, 4});
  CHECK_THROWS_AS(x.narrow(0, 9, 2), Error);
}

TEST_CASE("select and indexing drop a dimension") {
  const Tensor x = cube();
  CHECK(values(x.select(1, -1)) == Values{8, 9, 10, 11, 20, 21, 22, 23});
  CHECK(x[1][2][3].item() == 23);
  CHECK_THROWS_WITH_AS(x[2], doctest::Contains("index 2 is out of range for dimension 0 of size 2"), Error);
  CHECK_THROWS_AS(ones({})[0], Error);
}

TEST_CASE("expand broadcasts without memory") {
  const Tensor x = tensor({{1}, {2}});
  const Tensor y = x.expand({3, -1, 2});
  CHECK(y.shape() == Shape{3, 2, 2});
  CHECK(y.shares_storage(x));
  CHECK(values(y) == Values{1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2});
  CHECK_THROWS_AS(x.expand({3, 3}), Error);
  CHECK_THROWS_AS(x.expand({2}), Error);
  CHECK_THROWS_AS(x.expand({-1, 2, 1}), Error);
}

TEST_CASE("squeeze, unsqueeze and flatten") {
  const Tensor x = zeros({1, 3, 1});
  CHECK(x.squeeze().shape() == Shape{3});
  CHECK(x.squeeze(0).shape() == Shape{3, 1});
  CHECK(x.squeeze(1).shape() == Shape{1, 3, 1});
  CHECK(x.unsqueeze(-1).shape() == Shape{1, 3, 1, 1});
  CHECK(x.unsqueeze(0).shape() == Shape{1, 1, 3, 1});
  CHECK_THROWS_AS(x.unsqueeze(5), Error);
  CHECK(cube().flatten().shape() == Shape{24});
  CHECK(cube().flatten(1).shape() == Shape{2, 12});
  CHECK(cube().flatten(0, 1).shape() == Shape{6, 4});
  CHECK(zeros({}).flatten().shape() == Shape{1});
  CHECK_THROWS_AS(cube().flatten(2, 1), Error);
}

TEST_CASE("tensors of many dimensions work") {
  Shape shape(std::size_t{12}, 2);
  const Tensor x = arange(0, 4096).view(shape);
  Shape reversed;
  for (int d = 11; d >= 0; --d) reversed.push_back(d);
  const Tensor y = x.permute(reversed);
  CHECK(values((y + y).permute(reversed)) == values(x * 2));
}

TEST_CASE("views of channels-last memory") {
  const Tensor x = randn({2, 3, 4, 5});
  const Tensor y = x.channels_last();
  CHECK(y.strides() == Shape{60, 1, 15, 3});
  CHECK(values(y.flatten(1)) == values(x.flatten(1)));
  CHECK(values(y.flatten(2)) == values(x.flatten(2)));
  CHECK_THROWS_AS(cube().channels_last(), Error);
}
