// The CPU convolutions against the definition, written as loops in double.

#include <doctest/doctest.h>

#include "engine/cpu/conv.h"
#include "engine/cpu/parallel.h"
#include "tests/engine/kernel_testing.h"

using namespace halfgrad;
using halfgrad::testing::Array;
using halfgrad::testing::error_bound;
using halfgrad::testing::for_each_isa;

namespace {

struct Case {
  std::int64_t batch, inputs, height, width, outputs, filter_rows, filter_columns;
  Conv2dGeometry geometry = {};

  std::int64_t output_size(int d) const {
    const std::int64_t reach = geometry.dilation[d] * ((d == 0 ? filter_rows : filter_columns) - 1) + 1;
    const std::int64_t room = (d == 0 ? height : width) + 2 * geometry.padding[d] - reach;
    return room < 0 ? 0 : room / geometry.stride[d] + 1;
  }
  Shape x() const { return {batch, inputs, height, width}; }
  Shape w() const { return {outputs, inputs / geometry.groups, filter_rows, filter_columns}; }
  Shape y() const { return {batch, outputs, output_size(0), output_size(1)}; }
};

// Calls f(offset in x, offset in w, offset in y) for every product that the convolution consists of.
template <class F>
void for_each_product(const Case& c, const View& x, const View& w, const View& y, F&& f) {
  const Conv2dGeometry& g = c.geometry;
  const std::int64_t group_inputs = c.inputs / g.groups, group_outputs = c.outputs / g.groups;
  for (std::int64_t n = 0; n < c.batch; ++n)
    for (std::int64_t o = 0; o < c.outputs; ++o)
      for (std::int64_t i = 0; i < y.shape[2]; ++i)
        for (std::int64_t j = 0; j < y.shape[3]; ++j)
          for (std::int64_t k = 0; k < group_inputs; ++k)
            for (std::int64_t r = 0; r < c.filter_rows; ++r)
              for (std::int64_t s = 0; s < c.filter_columns; ++s) {
                const std::int64_t h = i * g.stride[0] + r * g.dilation[0] - g.padding[0];
                const std::int64_t v = j * g.stride[1] + s * g.dilation[1] - g.padding[1];
                if (h < 0 || h >= c.height || v < 0 || v >= c.width) continue;
                const std::int64_t channel = o / group_outputs * group_inputs + k;
                f(n * x.strides[0] + channel * x.strides[1] + h * x.strides[2] + v * x.strides[3],
                  o * w.strides[0] + k * w.strides[1] + r * w.strides[2] + s * w.strides[3],
                  n * y.strides[0] + o * y.strides[1] + i * y.strides[2] + j * y.strides[3]);
              }
}

// The exact sums of an array, the sums of absolute values and the numbers of terms, indexed by offset.
struct Sums {
  using Number = long double;
  std::vector<Number> value, magnitude;
  std::vector<std::int64_t> terms;
  explicit Sums(const Array& array) {
    std::int64_t size = 0;
    array.for_each([&](std::int64_t offset) { size = std::max(size, offset + 1); });
    value.resize(size);
    magnitude.resize(size);
    terms.resize(size);
  }
  void add(std::int64_t at, Number product) {
    value[at] += product;
    magnitude[at] += std::abs(product);
    ++terms[at];
  }
  void check(const Array& got, const char* what) const {
    double worst = 0;
    got.for_each([&](std::int64_t at) {
      const double error = static_cast<double>(std::abs(got.get(at) - value[at]));
      const double bound =
          error_bound(got.view.dtype, terms[at], static_cast<double>(magnitude[at]), static_cast<double>(value[at]));
      if (!(error <= bound)) worst = std::isfinite(error) && bound > 0 ? std::max(worst, error / bound) : HUGE_VAL;
    });
    INFO(what, ": worst error in units of its bound");
    CHECK(worst <= 1);
    CHECK(got.gaps_untouched());
  }
};

struct Layout {
  std::vector<int> x, w, y;
  std::int64_t gap;
};
const Layout kLayouts[] = {
    {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, 0},  // NCHW
    {{0, 2, 3, 1}, {0, 2, 3, 1}, {0, 2, 3, 1}, 0},  // channels last
    {{0, 2, 3, 1}, {0, 1, 2, 3}, {0, 1, 2, 3}, 3},  // a mixture, with gaps
    {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 3, 1}, 5},
    {{3, 1, 0, 2}, {1, 2, 3, 0}, {2, 0, 3, 1}, 1},  // nothing that anybody would do
};

void check_case(const Case& c, DType dtype, const Layout& layout) {
  INFO(name_of(dtype), " x ", c.x().str(), " w ", c.w().str(), " y ", c.y().str(), " stride ", c.geometry.stride[0],
       ",", c.geometry.stride[1], " padding ", c.geometry.padding[0], ",", c.geometry.padding[1], " dilation ",
       c.geometry.dilation[0], ",", c.geometry.dilation[1], " groups ", c.geometry.groups, " layout ",
       &layout - kLayouts);
  Array x(dtype, c.x(), layout.x, layout.gap), w(dtype, c.w(), layout.w, layout.gap);
  Array y(dtype, c.y(), layout.y, layout.gap), dy(y), bias(dtype, {c.outputs}), input_bias(dtype, {c.inputs});
  Array dx(x), dw(w);
  x.fill(1);
  w.fill(2);
  dy.fill(3);
  bias.fill(4);
  input_bias.fill(5);

  Sums expected_y(y), expected_dx(dx), expected_dw(dw);
  for_each_product(c, x.view, w.view, y.view, [&](std::int64_t ix, std::int64_t iw, std::int64_t iy) {
    const Sums::Number px = x.get(ix), pw = w.get(iw), py = dy.get(iy);
    expected_y.add(iy, px * pw);
    expected_dx.add(ix, py * pw);
    expected_dw.add(iw, py * px);
  });
  const auto with_bias = [](Sums sums, const Array& array, const Array& numbers) {
    const Shape& shape = array.view.shape;
    std::int64_t element = 0;
    array.for_each([&](std::int64_t at) { sums.add(at, numbers.get(element++ / (shape[2] * shape[3]) % shape[1])); });
    return sums;
  };
  const Sums expected_with_bias = with_bias(expected_y, y, bias);
  const Sums expected_dx_with_bias = with_bias(expected_dx, dx, input_bias);

  for_each_isa([&](const char* isa) {
    if (dtype == f64 && std::strcmp(isa, "baseline") != 0) return;  // has no kernels of its own
    INFO(isa);
    cpu::conv2d(y.view, x.view, w.view, View(), c.geometry);
    expected_y.check(y, "y");
    cpu::conv2d(y.view, x.view, w.view, bias.view, c.geometry);
    expected_with_bias.check(y, "y with bias");
    cpu::conv2d_backward_input(dx.view, dy.view, w.view, View(), c.geometry);
    expected_dx.check(dx, "dx");
    cpu::conv2d_backward_input(dx.view, dy.view, w.view, input_bias.view, c.geometry);
    expected_dx_with_bias.check(dx, "dx with bias");
    cpu::conv2d_backward_weight(dw.view, x.view, dy.view, c.geometry);
    expected_dw.check(dw, "dw");
  });
}

// batch, inputs, height, width, outputs, filter rows, filter columns, {stride, padding, dilation, groups}
const Case kCases[] = {
    {2, 1, 7, 9, 5, 3, 3, {.padding = {1, 1}}},
    {3, 3, 8, 8, 16, 3, 3, {.padding = {1, 1}}},
    {2, 16, 14, 14, 33, 3, 3, {.padding = {1, 1}}},
    {2, 5, 9, 31, 48, 3, 3},
    {1, 32, 15, 17, 32, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}},
    {2, 8, 12, 12, 20, 1, 1},
    {2, 19, 5, 6, 64, 1, 1},
    {2, 8, 9, 9, 12, 1, 1, {.stride = {2, 2}}},
    {1, 3, 23, 19, 8, 7, 7, {.stride = {2, 2}, .padding = {3, 3}}},
    {2, 6, 10, 7, 4, 2, 5, {.stride = {1, 3}, .padding = {0, 2}}},
    {2, 4, 13, 11, 6, 3, 3, {.padding = {2, 2}, .dilation = {2, 2}}},
    {1, 4, 16, 15, 5, 3, 2, {.stride = {2, 3}, .padding = {3, 1}, .dilation = {3, 2}}},
    {2, 12, 8, 9, 18, 3, 3, {.padding = {1, 1}, .groups = 3}},
    {2, 4, 9, 9, 8, 3, 3, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}},
    {2, 21, 10, 11, 21, 3, 3, {.padding = {1, 1}, .groups = 21}},                  // depthwise
    {2, 6, 11, 10, 18, 3, 3, {.stride = {2, 2}, .padding = {1, 1}, .groups = 6}},  // with three outputs per
                                                                                   // channel
    {20, 7, 4, 4, 35, 3, 3, {.padding = {1, 1}}},  // so small that tiles run along the images
    {17, 33, 3, 2, 40, 1, 1},
    {2, 3, 5, 5, 4, 3, 3, {.stride = {4, 4}}},   // pixels that no output sees
    {1, 2, 3, 3, 3, 1, 1, {.padding = {2, 2}}},  // outputs that see only padding
    {2, 3, 6, 6, 5, 6, 6},                       // one output pixel
    {2, 3, 4, 4, 5, 4, 4, {.padding = {4, 4}}},  // more padding than the transposed filter has room for
    {1, 1, 1, 1, 1, 1, 1},
    // Few inputs and long rows, whose input gradient goes another way.
    {2, 1, 28, 28, 32, 3, 3, {.padding = {1, 1}}},
    {2, 3, 18, 34, 16, 4, 4, {.stride = {2, 2}, .padding = {1, 1}}},
    {1, 2, 20, 40, 5, 3, 4, {.stride = {3, 2}, .padding = {2, 3}, .dilation = {2, 3}}},
    {1, 4, 9, 50, 7, 2, 3, {.stride = {4, 5}}},  // pixels that no output sees
    {1, 1, 5, 9, 3, 2, 2, {.padding = {3, 6}}},  // outputs that see only padding
};

}  // namespace

TEST_CASE("conv2d and its gradients: every geometry, layout and instruction set") {
  for (const Case& c : kCases)
    for (const Layout& layout : kLayouts)
      for (DType dtype : {f16, f32, f64}) check_case(c, dtype, layout);
}

TEST_CASE("conv2d and its gradients: several portions, parts and panels") {
  check_case({19, 1, 28, 28, 32, 3, 3, {.padding = {1, 1}}}, f16, kLayouts[0]);
  check_case({9, 32, 14, 14, 72, 3, 3, {.padding = {1, 1}}}, f32, kLayouts[1]);
  check_case({2, 64, 30, 70, 36, 1, 1}, f16, kLayouts[0]);
  check_case({5, 160, 7, 7, 130, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}}, f32, kLayouts[0]);
  check_case({1, 8, 120, 130, 8, 3, 3, {.padding = {1, 1}}}, f32, kLayouts[1]);
  check_case({33, 70, 4, 4, 50, 3, 3, {.padding = {1, 1}}}, f16, kLayouts[1]);
}

TEST_CASE("conv2d: nothing to do, or nothing to sum") {
  for (DType dtype : {f16, f32, f64}) {
    check_case({0, 3, 8, 8, 4, 3, 3}, dtype, kLayouts[0]);  // an empty batch has a weight gradient: zeros
    check_case({2, 3, 2, 8, 4, 3, 3}, dtype, kLayouts[0]);  // the filter is higher than the image
    check_case({2, 3, 8, 2, 4, 3, 3}, dtype, kLayouts[1]);
    check_case({2, 0, 8, 8, 4, 3, 3}, dtype, kLayouts[0]);  // no channels: y is the bias
    check_case({2, 3, 8, 8, 0, 3, 3}, dtype, kLayouts[0]);
  }
}

TEST_CASE("conv2d: the weight gradient of f16 is summed in f32 over the whole batch") {
  // 3000 products of 1 * 1: a sum in half would stop growing at 2048.
  const Case c = {300, 1, 5, 2, 1, 1, 1};
  Array x(f16, c.x()), dy(f16, c.y()), dw(f16, c.w());
  x.for_each([&](std::int64_t i) { x.set(i, 1); });
  dy.for_each([&](std::int64_t i) { dy.set(i, 1); });
  for_each_isa([&](const char*) {
    cpu::conv2d_backward_weight(dw.view, x.view, dy.view, c.geometry);
    CHECK(dw.get(0) == 3000);
  });
}

TEST_CASE("conv2d: the same bits with any number of threads") {
  const int usual = cpu::num_threads();
  const Case cases[] = {{37, 1, 28, 28, 32, 3, 3, {.padding = {1, 1}}},
                        {32, 32, 14, 14, 64, 3, 3, {.padding = {1, 1}}},
                        {6, 96, 9, 9, 128, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}},
                        {8, 24, 12, 12, 24, 3, 3, {.padding = {1, 1}, .groups = 24}}};
  for_each_isa([&](const char* isa) {
    INFO(isa);
    for (const Case& c : cases)
      for (DType dtype : {f16, f32, f64}) {
        if (dtype == f64 && c.batch > 10) continue;
        Array x(dtype, c.x()), w(dtype, c.w()), dy(dtype, c.y());
        x.fill(1);
        w.fill(2);
        dy.fill(3);
        Array y1(dtype, c.y()), y2(y1), dx1(dtype, c.x()), dx2(dx1), dw1(dtype, c.w()), dw2(dw1);
        cpu::set_num_threads(1);
        cpu::conv2d(y1.view, x.view, w.view, View(), c.geometry);
        cpu::conv2d_backward_input(dx1.view, dy.view, w.view, View(), c.geometry);
        cpu::conv2d_backward_weight(dw1.view, x.view, dy.view, c.geometry);
        for (int threads : {2, 3}) {
          cpu::set_num_threads(threads);
          cpu::conv2d(y2.view, x.view, w.view, View(), c.geometry);
          cpu::conv2d_backward_input(dx2.view, dy.view, w.view, View(), c.geometry);
          cpu::conv2d_backward_weight(dw2.view, x.view, dy.view, c.geometry);
          CHECK(y1.same_bits(y2));
          CHECK(dx1.same_bits(dx2));
          CHECK(dw1.same_bits(dw2));
        }
      }
  });
  cpu::set_num_threads(usual);
}
