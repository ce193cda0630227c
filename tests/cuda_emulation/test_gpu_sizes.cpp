// The same bits on every GPU: grids are as large as the GPU, but what is added to what is not for it to decide.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "device_array.h"
#include "engine/cuda/layer_norm.h"
#include "engine/cuda/line_plan.h"
#include "engine/cuda/reduce.h"
#include "engine/cuda/softmax.h"

using namespace halfgrad;
using namespace halfgrad::cuda;
using cuda_emulation::testing::DeviceArray;

namespace {

constexpr std::int64_t kRows = 70;

std::vector<float> numbers(std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
  return x;
}

View rows_of(const DeviceArray<float>& x, std::int64_t columns) {
  const Shape shape{kRows, columns};
  return {x.data(), f32, shape, contiguous_strides(shape), Device::cuda()};
}

// run(queue, y) gives the same y with any number of multiprocessors.
template <class Run>
void check_sizes(std::size_t results, Run&& run) {
  const Stream stream;
  std::vector<float> expected;
  for (int multiprocessors : {1, 3, 132}) {
    const DeviceArray<float> y(results);
    run(Queue{stream.get(), multiprocessors}, y);
    const std::vector<float> found = y.values(stream);
    if (expected.empty()) expected = found;
    CAPTURE(multiprocessors);
    CHECK(found == expected);
    CHECK(std::all_of(found.begin(), found.end(), [](float value) { return std::isfinite(value); }));
  }
}

}  // namespace

TEST_CASE("reductions have the same bits on GPUs of any size") {
  const Stream stream;
  for (std::int64_t n : {5, 100, 1500}) {
    const DeviceArray<float> x(numbers(kRows * n), stream);
    CAPTURE(n);
    for (std::uint64_t along : {0b01, 0b10})  // columns; rows
      check_sizes(
          static_cast<std::size_t>(along == 0b01 ? n : kRows), [&](const Queue& queue, const DeviceArray<float>& y) {
            const Shape shape = along == 0b01 ? Shape{1, n} : Shape{kRows, 1};
            const View from = rows_of(x, n), to{y.data(), f32, shape, contiguous_strides(shape), Device::cuda()};
            const LinePlan plan({&from, &to}, along);
            const auto length = static_cast<std::uint32_t>(plan.length());
            for (const Lines& lines : plan.whole_lines("sum")) reduce(0, f32, lines, {length, 1, 0, 0}, 1, queue);
          });
  }
}

TEST_CASE("softmax has the same bits on GPUs of any size") {
  const Stream stream;
  for (std::int64_t n : {5, 100, 1500}) {
    const DeviceArray<float> x(numbers(kRows * n), stream);
    CAPTURE(n);
    check_sizes(static_cast<std::size_t>(kRows * n), [&](const Queue& queue, const DeviceArray<float>& y) {
      const View from = rows_of(x, n), to = rows_of(y, n);
      for (const Lines& lines : LinePlan({&from, &to}, 0b10).whole_lines("softmax")) softmax(f32, true, lines, queue);
    });
  }
}

TEST_CASE("the gradients of layer_norm's weights have the same bits on GPUs of any size") {
  const Stream stream;
  const std::int64_t n = 37, chunk = 16, chunks = (kRows + chunk - 1) / chunk;
  const DeviceArray<float> x(numbers(kRows * n), stream), dy(numbers(kRows * n), stream);
  const DeviceArray<float> mean(numbers(kRows), stream), rstd(numbers(kRows), stream);
  const auto sums = static_cast<std::size_t>(chunks * n);
  check_sizes(2 * sums, [&](const Queue& queue, const DeviceArray<float>& y) {
    layer_norm_column_sums(f32, {{x.data(), f32}, n, 1}, {{dy.data(), f32}, n, 1}, {{mean.data(), f32}, 1},
                           {{rstd.data(), f32}, 1}, kRows, n, chunk, y.data(), y.data() + sums, queue);
  });
}
