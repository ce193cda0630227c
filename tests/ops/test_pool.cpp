#include "engine/ops/pool.h"

#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

namespace {

struct Case {
  Shape x;
  Pair kernel;
  PoolOptions options;
};

const std::vector<Case> kCases = {
    {{1, 1, 1, 1}, 1, {}},
    {{2, 3, 6, 8}, 2, {}},
    {{2, 3, 7, 5}, 2, {}},
    {{1, 67, 5, 7}, 3, {.stride = 2, .padding = 1}},
    {{2, 3, 7, 5}, {3, 2}, {.stride = {1, 2}, .padding = {1, 0}}},
    {{1, 2, 5, 5}, 5, {}},
    {{1, 2, 6, 6}, 3, {.stride = 1, .padding = 1}},
    {{0, 3, 4, 4}, 2, {}},
    {{2, 0, 4, 4}, 2, {}},
};

Shape pooled(const Case& k) {
  Shape y = k.x;
  for (int axis : {0, 1}) {
    const std::int64_t stride = k.options.stride[axis] == 0 ? k.kernel[axis] : k.options.stride[axis];
    y[2 + axis] =
        (k.x[2 + axis] + 2 * k.options.padding[axis] - k.options.dilation[axis] * (k.kernel[axis] - 1) - 1) / stride +
        1;
  }
  return y;
}

// f(n, c, oh, ow, positions) for each window, with the positions {h, w} of x that it sees, in order.
template <class F>
void for_each_window(const Case& k, F f) {
  const Shape y = pooled(k);
  const auto positions = [&](int axis, std::int64_t o) {
    std::vector<std::int64_t> result;
    const std::int64_t stride = k.options.stride[axis] == 0 ? k.kernel[axis] : k.options.stride[axis];
    for (std::int64_t i = 0; i < k.kernel[axis]; ++i) {
      const std::int64_t at = o * stride - k.options.padding[axis] + i * k.options.dilation[axis];
      if (at >= 0 && at < k.x[2 + axis]) result.push_back(at);
    }
    return result;
  };
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t c = 0; c < y[1]; ++c)
      for (std::int64_t oh = 0; oh < y[2]; ++oh)
        for (std::int64_t ow = 0; ow < y[3]; ++ow) {
          std::vector<std::pair<std::int64_t, std::int64_t>> window;
          for (std::int64_t h : positions(0, oh))
            for (std::int64_t w : positions(1, ow)) window.emplace_back(h, w);
          f(n, c, oh, ow, window);
        }
}

// Different values everywhere, so that a small step does not change which one is the maximum.
Tensor distinct(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 7919 % values.size()) * 0.25;
  return from_vector(values, shape);
}

std::string describe(const Case& k) { return "x " + k.x.str() + ", kernel " + std::to_string(k.kernel.h); }

}  // namespace

TEST_CASE("max_pool2d takes the maximum of each window and keeps the memory layout") {
  std::vector<Case> cases = kCases;
  cases.push_back({{1, 2, 7, 9}, 3, {.stride = 1, .padding = 1, .dilation = {2, 3}}});
  cases.push_back({{1, 2, 7, 9}, 2, {.dilation = 3}});
  for (DType dtype : {f16, f32, f64})
    for (const Case& k : cases) {
      CAPTURE(describe(k));
      const Tensor x = random(k.x, dtype);
      const Array values(x);
      Array expected(pooled(k), 0), gradient(k.x, 0);
      const Tensor dy = random(pooled(k), dtype, 2);
      const Array vdy(dy);
      Array magnitude = gradient;
      for_each_window(k, [&](auto n, auto c, auto oh, auto ow, const auto& window) {
        auto best = window[0];
        for (auto at : window)
          if (values({n, c, at.first, at.second}) > values({n, c, best.first, best.second})) best = at;
        expected({n, c, oh, ow}) = values({n, c, best.first, best.second});
        gradient({n, c, best.first, best.second}) += vdy({n, c, oh, ow});
        magnitude({n, c, best.first, best.second}) += std::abs(vdy({n, c, oh, ow}));
      });
      for (Tensor input : {x.clone(), x.channels_last().detach()}) {
        const bool channels_last = input.is_channels_last(), contiguous = input.is_contiguous();
        const Tensor without_gradient = max_pool2d(input, k.kernel, k.options);
        CHECK(without_gradient.to_vector<double>() == expected.values);
        input.requires_grad_();
        const Tensor y = max_pool2d(input, k.kernel, k.options);
        REQUIRE(y.shape() == expected.shape);
        CHECK(y.dtype() == dtype);
        CHECK(y.to_vector<double>() == expected.values);
        if (contiguous) CHECK(y.is_contiguous());
        if (channels_last && !contiguous) CHECK(y.is_channels_last());
        // Where windows overlap up to 9 numbers meet.
        check_sums(grad(y, {input}, dy)[0], gradient, magnitude, 9);
      }
    }
}

TEST_CASE("max_pool2d: NaN wins, the first maximum gets the gradient, and -inf is a number like others") {
  for (DType dtype : {f16, f32, f64})
    for (bool channels_last : {false, true}) {
      const double inf = INFINITY;
      Tensor x = tensor({1, NAN, inf, NAN, 3, 3, 3, 3, -inf, -inf, -inf, -inf, 65504, inf, -inf, 0x1p-24}, dtype);
      x = x.view({1, 4, 2, 2});
      x = channels_last ? x.channels_last() : x;
      x.requires_grad_();
      const Tensor y = max_pool2d(x, 2);
      const auto v = y.to_vector<double>();
      CHECK(std::isnan(v[0]));
      CHECK(v[1] == 3);
      CHECK(v[2] == -inf);
      CHECK(v[3] == inf);
      CHECK(grad(y, {x}, ones_like(y))[0].to_vector<double>() ==
            std::vector<double>{0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0});
    }
  // Padding never wins, not even over negative numbers.
  CHECK(max_pool2d(full({1, 1, 2, 2}, -5), 2, {.stride = 1, .padding = 1}).to_vector<double>() ==
        std::vector<double>(9, -5));
}

TEST_CASE("average pools are the means of their windows and keep the memory layout") {
  for (DType dtype : {f16, f32, f64})
    for (bool count_include_pad : {true, false})
      for (Case k : kCases) {
        CAPTURE(describe(k));
        k.options.count_include_pad = count_include_pad;
        const Tensor x = random(k.x, dtype), dy = random(pooled(k), dtype, 2);
        const Array values(x), vdy(dy);
        Array mean(pooled(k), 0), gradient(k.x, 0), mean_magnitude = mean, magnitude = gradient;
        for_each_window(k, [&](auto n, auto c, auto oh, auto ow, const auto& window) {
          const double size =
              count_include_pad ? static_cast<double>(k.kernel.h * k.kernel.w) : static_cast<double>(window.size());
          for (auto [h, w] : window) {
            mean({n, c, oh, ow}) += values({n, c, h, w}) / size;
            mean_magnitude({n, c, oh, ow}) += std::abs(values({n, c, h, w}) / size);
            gradient({n, c, h, w}) += vdy({n, c, oh, ow}) / size;
            magnitude({n, c, h, w}) += std::abs(vdy({n, c, oh, ow}) / size);
          }
        });
        // The division is one more rounding in f32, at most: one more term.
        const double terms = static_cast<double>(k.kernel.h * k.kernel.w) + 1;
        for (Tensor input : {x.clone(), x.channels_last().detach()}) {
          input.requires_grad_();
          const Tensor y = avg_pool2d(input, k.kernel, k.options);
          check_sums(y, mean, mean_magnitude, terms);
          if (input.is_contiguous()) CHECK(y.is_contiguous());
          if (input.is_channels_last() && !input.is_contiguous()) CHECK(y.is_channels_last());
          check_sums(grad(y, {input}, dy)[0], gradient, magnitude, terms);
        }
      }
}

TEST_CASE("adaptive_avg_pool2d divides the plane as evenly as possible") {
  const Tensor row = arange(7.0, 14.0, 1, f64).view({1, 1, 1, 7});
  // Windows [0, 3), [2, 5), [4, 7).
  CHECK(adaptive_avg_pool2d(row, {1, 3}).to_vector<double>() == std::vector<double>{8, 10, 12});
  // More windows than rows: some positions are read twice.
  CHECK(adaptive_avg_pool2d(tensor({1, 2}).view({1, 1, 2, 1}), {4, 1}).to_vector<double>() ==
        std::vector<double>{1, 1, 2, 2});
  for (DType dtype : {f16, f32, f64}) {
    const Tensor x = random({2, 5, 7, 3}, dtype);
    const Array values(x);
    Array mean({2, 5, 1, 1}, 0), magnitude = mean;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double v = values.values[static_cast<std::size_t>(i)] / 21;
      mean.values[static_cast<std::size_t>(i / 21)] += v;
      magnitude.values[static_cast<std::size_t>(i / 21)] += std::abs(v);
    }
    check_sums(adaptive_avg_pool2d(x, 1), mean, magnitude, 22);
    check_sums(adaptive_avg_pool2d(x.channels_last(), 1), mean, magnitude, 22);
  }
  // In f16 the sum of 4096 ones would stall at 2048.
  CHECK(adaptive_avg_pool2d(ones({1, 1, 64, 64}, f16), 1).item() == 1);
  CHECK(adaptive_avg_pool2d(full({1, 1, 64, 64}, 65504, f16), 1).item() == 65504);
}

TEST_CASE("pools have first and second gradients") {
  const Tensor x = distinct({2, 3, 5, 4});
  const Function max = [](const Tensors& in) { return max_pool2d(in[0], 3, {.stride = 1, .padding = 1}); };
  const Function average = [](const Tensors& in) {
    return avg_pool2d(in[0], {3, 2}, {.stride = 2, .padding = 1, .count_include_pad = false});
  };
  const Function adaptive = [](const Tensors& in) { return adaptive_avg_pool2d(in[0], {3, 3}); };
  for (const Function& f : {max, average, adaptive})
    for (const Tensor& input : {x, x.channels_last()}) {
      check_gradients(f, {input});
      check_second_gradients(f, {input});
    }
}

TEST_CASE("pools read strided memory and take an image without a batch") {
  const Tensor x = random({4, 6, 9, 10}).slice(1, 0, 6, 2).slice(3, 0, 10, 2);
  check_equal(max_pool2d(x, 2), max_pool2d(x.contiguous(), 2));
  check_equal(avg_pool2d(x, 2), avg_pool2d(x.contiguous(), 2));
  check_equal(max_pool2d(x[1], 2), max_pool2d(x, 2)[1]);
  check_equal(avg_pool2d(x[1], 2), avg_pool2d(x, 2)[1]);
  check_equal(adaptive_avg_pool2d(x[1], 2), adaptive_avg_pool2d(x, 2)[1]);
}

TEST_CASE("the pools' errors say what does not fit") {
  const Tensor x = ones({1, 2, 4, 4});
  CHECK(contains(error_of([&] { max_pool2d(ones({4, 4}), 2); }), "expected [N, C, H, W]"));
  CHECK(contains(error_of([&] { max_pool2d(x.to(i64), 2); }), "x is i64"));
  CHECK(contains(error_of([&] { max_pool2d(x, 5); }), "the kernel covers 5 positions"));
  const Tensor large = full({1, 1, 1, 1}, 1).expand({1, 1, 65536, 65536});  // positions are counted in i32
  CHECK(contains(error_of([&] { max_pool2d(large, 32768); }), "expected planes of 1 to 2147483647 elements"));
  CHECK(contains(error_of([&] { max_pool2d(x, 0); }), "kernel 0"));
  CHECK(contains(error_of([&] { max_pool2d(x, 2, {.stride = -1}); }), "stride -1"));
  CHECK(contains(error_of([&] { avg_pool2d(x, 3, {.padding = 2}); }), "padding 2 is more than half of the kernel 3"));
  CHECK(contains(error_of([&] { avg_pool2d(x, 2, {.dilation = 2}); }), "dilation is 2x2"));
  CHECK(contains(error_of([&] {
                   max_pool2d(ones({1, 1, 2, 2}), 2, {.padding = 1, .dilation = 3});
                 }),
                 "sees only padding"));
  CHECK(contains(error_of([&] { max_pool2d(ones({1, 1, 0, 4}), 2); }), "x is [1, 1, 0, 4]"));
  CHECK(contains(error_of([&] { adaptive_avg_pool2d(x, 0); }), "output is 0x0"));
  CHECK(contains(error_of([&] { max_pool2d(Tensor(), 2); }), "undefined"));
  CHECK(error_of([&] { adaptive_avg_pool2d(ones({1, 4, 2, 2}), INT32_MAX); }) != "");  // more memory than there is
}
