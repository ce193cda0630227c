// engine/cuda/line_plan.h: views of any size as lines that a kernel can count through. The memory is never touched.

#include <doctest/doctest.h>


#include "engine/cuda/line_plan.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::cuda;

namespace {

alignas(64) char memory[64];

View view_of(const Shape& shape, const Strides& strides, DType dtype = f32) { return {memory, dtype, shape, strides}; }
View dense(const Shape& shape, DType dtype = f32) { return view_of(shape, contiguous_strides(shape), dtype); }

std::int64_t offset(const Array& array) {
  return (static_cast<char*>(array.data) - memory) / static_cast<std::int64_t>(size_of(array.dtype));
}

}  // namespace

TEST_CASE("lines go along any dimensions, and outputs of size 1 stay where they are") {
  const View x = dense({2, 3, 4}), y = view_of({2, 1, 4}, {4, 4, 1});
  const auto parts = LinePlan({&x, &y}, 0b010).parts(1, 8);
  REQUIRE(parts.size() == 1);
  const Lines& lines = parts[0].lines;
  CHECK(lines.lines.numel == 8);
  CHECK(lines.elements.numel == 3);
  CHECK(lines.lines.position(5, 0) == 13);
  CHECK(lines.lines.position(5, 1) == 5);
  CHECK(lines.elements.position(2, 0) == 8);
  CHECK(lines.elements.position(2, 1) == 0);
}

TEST_CASE("eight elements at a time: only in dense lines that all begin at a multiple of 16 bytes") {
  const auto by_eight = [](const View& x, const View& y) {
    return LinePlan({&x, &y}, 0b10).parts(32, 32)[0].lines.by_eight;
  };
  const View x = dense({3, 32}), sums = dense({3, 1});
  CHECK(by_eight(x, dense({3, 32})));
  CHECK(by_eight(x, sums));
  CHECK(by_eight(dense({3, 32}, f16), dense({3, 32}, f16)));
  CHECK(by_eight(x, view_of({3, 32}, {40, 1})));
  CHECK_FALSE(by_eight(dense({3, 31}), dense({3, 31})));
  CHECK_FALSE(by_eight(x, view_of({3, 32}, {33, 1})));
  CHECK_FALSE(by_eight(x, view_of({3, 32}, {1, 3})));
  CHECK_FALSE(by_eight(x, view_of({3, 32}, {0, 0})));  // a sum's gradient, one number for all
  CHECK_FALSE(by_eight(dense({3, 32}, f64), dense({3, 32}, f64)));
  View late = x;
  late.data = memory + 4;
  CHECK_FALSE(by_eight(late, x));
}

TEST_CASE("groups are as large as lines are long, and single threads where neighbours lie closer") {
  CHECK(LinePlan::group_for(16, false) == 1);
  CHECK(LinePlan::group_for(17, false) == 32);
  CHECK(LinePlan::group_for(1025, false) == 256);
  CHECK(LinePlan::group_for(512, true) == 1);
  const View rows = dense({100, 200}), columns = view_of({100, 200}, {1, 100});
  CHECK_FALSE(LinePlan({&rows}, 0b10).lines_are_closer());
  CHECK(LinePlan({&columns}, 0b10).lines_are_closer());
  CHECK(LinePlan({&rows}, 0b01).lines_are_closer());
}

TEST_CASE("lines of more than 2^31 elements come in parts, whose chunks follow each other") {
  const std::int64_t n = (std::int64_t{5} << 30) + 3, chunk = 8192;
  const View x = dense({2, n}, u8), y = dense({2, 1}, u8);
  const LinePlan plan({&x, &y}, 0b10);
  std::int64_t elements = 0, chunks = 0;
  for (const auto& [lines, first_chunk] : plan.parts(256, chunk)) {
    const std::int64_t numel = lines.elements.numel;
    const std::int64_t line = offset(lines.at[1]);
    if (offset(lines.at[0]) == line * n) elements = chunks = 0;  // another line begins
    CHECK(lines.lines.numel == 1);
    CHECK(offset(lines.at[0]) == line * n + elements);
    CHECK(first_chunk == chunks);
    elements += numel;
    chunks += (numel + chunk - 1) / chunk;
  }
  CHECK(elements == n);
  CHECK(chunks == plan.chunks(chunk));
  CHECK_THROWS_WITH_AS(plan.whole_lines("softmax"), doctest::Contains("softmax: a line of 5368709123 elements"), Error);
}

TEST_CASE("more than 2^31 lines come in parts, too") {
  const std::int64_t n = (std::int64_t{3} << 30) + 1;
  const View x = dense({n, 4}, u8), y = dense({n, 1}, u8);
  std::int64_t found = 0;
  for (const Lines& lines : LinePlan({&x, &y}, 0b10).whole_lines("sum")) {
    CHECK(offset(lines.at[1]) == found);
    CHECK(offset(lines.at[0]) == 4 * found);
    found += lines.lines.numel;
  }
  CHECK(found == n);
}
