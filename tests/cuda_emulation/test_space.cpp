// engine/cuda/space.h and pieces.h: division by multiplication, and spaces cut into pieces that a kernel can count through.

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/cuda/pieces.h"

using namespace halfgrad;
using namespace halfgrad::cuda;

namespace {

View view_of(const Shape& shape, const Strides& strides) {
  static float memory = 0;  // never read
  return {&memory, f32, shape, strides};
}

// Where the elements of the pieces lie in every operand, in the order of the kernels.
std::vector<std::vector<std::int64_t>> positions(const std::vector<Piece>& pieces, std::int64_t limit) {
  std::vector<std::vector<std::int64_t>> all;
  for (const Piece& piece : pieces) {
    const Space space = space_of(piece);
    CHECK(piece.nest.numel <= limit);
    CHECK(space.rank <= Space::kMaxRank);
    for (std::uint32_t i = 0; i < space.numel; ++i) {
      std::uint32_t at[2];
      space.positions(i, at);
      CHECK(std::max(at[0], at[1]) < limit);
      all.push_back({piece.begin[0] + at[0], piece.begin[1] + at[1]});
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("a divisor divides") {
  for (std::uint32_t d : {1U, 2U, 3U, 5U, 7U, 10U, 64U, 100U, 641U, 65535U, 65536U, 6700417U, 0x3FFFFFFFU, 0x40000000U,
                          0x40000001U, 0x7FFFFFFEU, 0x7FFFFFFFU}) {
    const Divisor divisor(d);
    for (std::uint64_t multiple = 0; multiple <= 0x7FFFFFFF; multiple += std::uint64_t{d} * (0x7FFFFFFF / d / 50 + 1))
      for (std::int64_t near : {-1, 0, 1}) {
        const std::int64_t n = static_cast<std::int64_t>(multiple) + near;
        if (n < 0 || n > 0x7FFFFFFF) continue;
        CAPTURE(d);
        CAPTURE(n);
        CHECK(divisor.quotient(static_cast<std::uint32_t>(n)) == static_cast<std::uint32_t>(n) / d);
      }
  }
}

TEST_CASE("a space that fits is one piece") {
  const View y = view_of({3, 5, 7}, {35, 7, 1}), x = view_of({3, 5, 7}, {1, 3, 15});
  const std::vector<Piece> whole = pieces(LoopNest{&y, &x});
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].nest.numel == 105);
  const View dense = view_of({3, 5, 7}, {35, 7, 1});
  CHECK(pieces(LoopNest{&dense, &y})[0].nest.shape == Shape{105});
}

TEST_CASE("pieces have every element once, whatever the limit") {
  const Shape shape{4, 5, 6};
  for (const Strides& strides :
       {Strides{30, 6, 1}, Strides{1, 4, 20}, Strides{0, 1, 5}, Strides{1, 0, 0}, Strides{60, 12, 2}}) {
    const View y = view_of(shape, {30, 6, 1}), x = view_of(shape, strides);
    const LoopNest nest{&y, &x};
    const auto expected = positions(pieces(nest), INT32_MAX);
    CHECK(expected.size() == 120);
    for (std::int64_t limit : {119, 64, 31, 7, 1}) {
      CAPTURE(strides.str());
      CAPTURE(limit);
      const std::vector<Piece> cut = pieces(nest, limit);
      CHECK(cut.size() > 1);
      CHECK(positions(cut, limit) == expected);
    }
  }
}

TEST_CASE("elements that are more than 2^31 apart are in different pieces") {
  const std::int64_t far = std::int64_t{3} << 30;
  const View y = view_of({2, 3}, {3, 1}), x = view_of({2, 3}, {far, 1});
  const std::vector<Piece> cut = pieces(LoopNest{&y, &x});
  REQUIRE(cut.size() == 2);
  CHECK(cut[1].begin[0] == 3);
  CHECK(cut[1].begin[1] == far);
  CHECK(cut[1].nest.shape == Shape{3});
}

TEST_CASE("more dimensions than a kernel knows are cut off at the outside") {
  Shape shape;
  Strides strides, backwards;
  for (int d = 0; d < 10; ++d) shape.push_back(2);
  for (int d = 0; d < 10; ++d) {
    strides.push_back(std::int64_t{1} << (9 - d));
    backwards.push_back(std::int64_t{1} << d);
  }
  const View y = view_of(shape, strides), x = view_of(shape, backwards);
  const std::vector<Piece> cut = pieces(LoopNest{&y, &x});
  CHECK(cut.size() == 4);
  const auto all = positions(cut, INT32_MAX);
  REQUIRE(all.size() == 1024);
  for (std::int64_t i = 0; i < 1024; ++i) {
    std::int64_t mirrored = 0;
    for (int bit = 0; bit < 10; ++bit) mirrored |= (i >> bit & 1) << (9 - bit);
    CHECK(all[static_cast<std::size_t>(i)] == std::vector<std::int64_t>{i, mirrored});
  }
}
