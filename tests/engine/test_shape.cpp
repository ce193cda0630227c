#include <doctest/doctest.h>

#include "engine/error.h"
#include "engine/shape.h"

using namespace halfgrad;

TEST_CASE("a shape holds any number of entries, on the stack or the heap") {
  for (std::size_t n : {0, 1, 5, 6, 7, 20}) {
    Shape shape;
    for (std::size_t i = 0; i < n; ++i) shape.push_back(static_cast<std::int64_t>(i + 1));
    REQUIRE(shape.size() == n);
    for (std::size_t i = 0; i < n; ++i) CHECK(shape[i] == static_cast<std::int64_t>(i + 1));
    Shape copy = shape, assigned{9, 9}, moved;
    assigned = shape;
    CHECK(copy == shape);
    CHECK(assigned == shape);
    moved = std::move(copy);
    CHECK(moved == shape);
    Shape constructed(std::move(moved));
    CHECK(constructed == shape);
  }
}

TEST_CASE("inserting and erasing move the entries behind") {
  Shape shape{1, 2, 3, 4, 5, 6};
  shape.insert(2, 42);
  CHECK(shape == Shape{1, 2, 42, 3, 4, 5, 6});
  shape.erase(0);
  CHECK(shape == Shape{2, 42, 3, 4, 5, 6});
  CHECK(shape.str() == "[2, 42, 3, 4, 5, 6]");
}

TEST_CASE("numel is the product of the sizes, 1 for a scalar and 0 with an empty dimension") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 0, 4}.numel() == 0);
}

TEST_CASE("shapes broadcast as in NumPy") {
  CHECK(broadcast_shapes({2, 3}, {3}, "op") == Shape{2, 3});
  CHECK(broadcast_shapes({2, 1}, {1, 5}, "op") == Shape{2, 5});
  CHECK(broadcast_shapes({}, {4}, "op") == Shape{4});
  CHECK(broadcast_shapes({0}, {1}, "op") == Shape{0});
  CHECK_THROWS_WITH_AS(broadcast_shapes({2, 3}, {2, 4}, "add"),
                       doctest::Contains("add: shapes [2, 3] and [2, 4] do not broadcast"), Error);
  CHECK_THROWS_AS(broadcast_shapes({0}, {2}, "op"), Error);
}

TEST_CASE("dimensions count from the end when negative and are checked") {
  CHECK(normalize_dim(-1, 3, "op") == 2);
  CHECK(normalize_dim(0, 0, "op") == 0);  // a scalar has one addressable dimension
  CHECK_THROWS_WITH_AS(normalize_dim(3, 3, "sum"), doctest::Contains("sum: dimension 3 is out of range"), Error);
  CHECK(normalize_dims({}, 3, "op") == Shape{0, 1, 2});
  CHECK(normalize_dims({-1, 0}, 3, "op") == Shape{0, 2});
  CHECK_THROWS_WITH_AS(normalize_dims({0, -3}, 3, "sum"), doctest::Contains("named twice"), Error);
}

TEST_CASE("reduced shapes drop the dimensions or keep them with size 1") {
  CHECK(reduced_shape({2, 3, 4}, {1}, false) == Shape{2, 4});
  CHECK(reduced_shape({2, 3, 4}, {0, 2}, true) == Shape{1, 3, 1});
}

TEST_CASE("broadcast dimensions have stride 0") {
  CHECK(broadcast_strides({3, 1}, {1, 1}, {2, 3, 4}) == Shape{0, 1, 0});
  CHECK(contiguous_strides({2, 3, 4}) == Shape{12, 4, 1});
}
