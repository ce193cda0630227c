// Convolutions in f64. They exist to check gradients, so they are short rather than fast: each image is
// unfolded into a matrix with one row per weight of a filter and one column per output pixel, and the rest is
// a matrix product.

#include <vector>

#include "engine/cpu/conv.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/parallel.h"

namespace halfgrad::cpu {
namespace {

// The sizes of one group of channels of a convolution.
struct Sizes {
  std::int64_t groups, inputs, outputs, height, width, filter_rows, filter_columns, rows, columns;
  std::int64_t taps = inputs * filter_rows * filter_columns;  // rows of the unfolded matrix
  std::int64_t pixels = rows * columns;

  Sizes(const View& x, const View& w, const View& y, const Conv2dGeometry& geometry)
      : groups(geometry.groups),
        inputs(w.shape[1]),
        outputs(w.shape[0] / geometry.groups),
        height(x.shape[2]),
        width(x.shape[3]),
        filter_rows(w.shape[2]),
        filter_columns(w.shape[3]),
        rows(y.shape[2]),
        columns(y.shape[3]) {}
};

View matrix(double* data, std::int64_t rows, std::int64_t columns) {
  return {data, f64, {1, rows, columns}, {0, columns, 1}};
}
View transposed(double* data, std::int64_t rows, std::int64_t columns) {
  return {data, f64, {1, columns, rows}, {0, 1, columns}};
}

// Calls f(unfolded element, element of x) for all pairs that are the same number: x seen by every tap at
// every output pixel. Taps that see padding are left out.
template <class F>
void unfold(const Sizes& s, const View& x, std::int64_t image, std::int64_t group, double* unfolded,
            const Conv2dGeometry& g, const F& f) {
  double* base = x.as<double>() + image * x.strides[0] + group * s.inputs * x.strides[1];
  for (std::int64_t c = 0; c < s.inputs; ++c)
    for (std::int64_t r = 0; r < s.filter_rows; ++r)
      for (std::int64_t t = 0; t < s.filter_columns; ++t)
        for (std::int64_t i = 0; i < s.rows; ++i)
          for (std::int64_t j = 0; j < s.columns; ++j, ++unfolded) {
            const std::int64_t h = i * g.stride[0] + r * g.dilation[0] - g.padding[0];
            const std::int64_t v = j * g.stride[1] + t * g.dilation[1] - g.padding[1];
            if (h >= 0 && h < s.height && v >= 0 && v < s.width)
              f(*unfolded, base[c * x.strides[1] + h * x.strides[2] + v * x.strides[3]]);
          }
}

// Calls f(dense element, element of v) for a part of the first dimension of a 4-d view; the dense order is
// row-major.
template <class F>
void visit(const View& v, std::int64_t first, std::int64_t count, double* dense, const F& f) {
  for (std::int64_t a = first; a < first + count; ++a)
    for (std::int64_t b = 0; b < v.shape[1]; ++b)
      for (std::int64_t c = 0; c < v.shape[2]; ++c)
        for (std::int64_t d = 0; d < v.shape[3]; ++d)
          f(*dense++, v.as<double>()[a * v.strides[0] + b * v.strides[1] + c * v.strides[2] + d * v.strides[3]]);
}

// One group's channels of one image, as a view whose first dimension is that of channels.
View channels_of(const View& v, std::int64_t image, std::int64_t group, std::int64_t channels) {
  View result = v;
  result.data = v.as<double>() + image * v.strides[0] + group * channels * v.strides[1];
  result.shape = {channels, 1, v.shape[2], v.shape[3]};
  result.strides = {v.strides[1], 0, v.strides[2], v.strides[3]};
  return result;
}

constexpr auto read = [](double& dense, double element) { dense = element; };
constexpr auto write = [](double dense, double& element) { element = dense; };
constexpr auto add = [](double dense, double& element) { element += dense; };

}  // namespace

void conv2d_f64(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry& geometry,
                Activation activation) {
  const Sizes s(x, w, y, geometry);
  parallel_for(y.shape[0] * s.groups, 1, [&](std::int64_t task, std::int64_t) {
    const std::int64_t image = task / s.groups, group = task % s.groups;
    std::vector<double> weights(s.outputs * s.taps), unfolded(s.taps * s.pixels), result(s.outputs * s.pixels);
    visit(w, group * s.outputs, s.outputs, weights.data(), read);
    unfold(s, x, image, group, unfolded.data(), geometry, read);
    gemm(matrix(result.data(), s.outputs, s.pixels), matrix(weights.data(), s.outputs, s.taps),
         matrix(unfolded.data(), s.taps, s.pixels), View(), Activation::none);
    if (bias)
      for (std::int64_t i = 0; i < s.outputs * s.pixels; ++i)
        result[i] += bias.as<double>()[(group * s.outputs + i / s.pixels) * bias.strides[0]];
    if (activation == Activation::relu)
      for (double& x : result) x = x < 0 ? 0 : x;
    visit(channels_of(y, image, group, s.outputs), 0, s.outputs, result.data(), write);
  });
}

void conv2d_backward_input_f64(const View& dx, const View& dy, const View& w, const View& bias,
                               const Conv2dGeometry& geometry) {
  const Sizes s(dx, w, dy, geometry);
  parallel_for(dx.shape[0] * s.groups, 1, [&](std::int64_t task, std::int64_t) {
    const std::int64_t image = task / s.groups, group = task % s.groups;
    std::vector<double> weights(s.outputs * s.taps), gradient(s.outputs * s.pixels), unfolded(s.taps * s.pixels);
    visit(w, group * s.outputs, s.outputs, weights.data(), read);
    visit(channels_of(dy, image, group, s.outputs), 0, s.outputs, gradient.data(), read);
    gemm(matrix(unfolded.data(), s.taps, s.pixels), transposed(weights.data(), s.outputs, s.taps),
         matrix(gradient.data(), s.outputs, s.pixels), View(), Activation::none);
    std::vector<double> start(s.inputs * s.height * s.width, 0.0);
    if (bias)
      for (std::int64_t i = 0; i < s.inputs * s.height * s.width; ++i)
        start[i] = bias.as<double>()[(group * s.inputs + i / (s.height * s.width)) * bias.strides[0]];
    visit(channels_of(dx, image, group, s.inputs), 0, s.inputs, start.data(), write);
    unfold(s, dx, image, group, unfolded.data(), geometry, add);
  });
}

void conv2d_backward_weight_f64(const View& dw, const View& x, const View& dy, const Conv2dGeometry& geometry) {
  const Sizes s(x, dw, dy, geometry);
  parallel_for(s.groups, 1, [&](std::int64_t group, std::int64_t) {
    std::vector<double> sums(s.outputs * s.taps, 0.0), product(s.outputs * s.taps);
    for (std::int64_t image = 0; image < x.shape[0]; ++image) {
      std::vector<double> gradient(s.outputs * s.pixels), unfolded(s.taps * s.pixels, 0.0);
      visit(channels_of(dy, image, group, s.outputs), 0, s.outputs, gradient.data(), read);
      unfold(s, x, image, group, unfolded.data(), geometry, read);
      gemm(matrix(product.data(), s.outputs, s.taps), matrix(gradient.data(), s.outputs, s.pixels),
           transposed(unfolded.data(), s.taps, s.pixels), View(), Activation::none);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += product[i];
    }
    visit(dw, group * s.outputs, s.outputs, sums.data(), write);
  });
}

}  // namespace halfgrad::cpu
