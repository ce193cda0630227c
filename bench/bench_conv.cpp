// Convolutions in GFLOP/s: forward, input gradient and weight gradient, in f32 and f16, for images in
// channels-last and in NCHW memory; and unfolding the images into a matrix for Eigen in f32, forward, for
// comparison.
//
//   bench_conv [threads]

#include <Eigen/Core>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/timing.h"
#include "engine/cpu/conv.h"
#include "engine/cpu/kernels.h"

using namespace halfgrad;

namespace {

struct Case {
  std::int64_t batch, inputs, size, outputs, filter, stride, groups = 1;
  std::int64_t padding() const { return filter / 2; }
  std::int64_t output_size() const { return (size + 2 * padding() - filter) / stride + 1; }
  double gflop() const {
    return 2e-9 * batch * outputs * output_size() * output_size() * (inputs / groups) * filter * filter;
  }
};

constexpr Case kCases[] = {
    {128, 1, 28, 32, 3, 1},     {128, 32, 14, 64, 3, 1}, {64, 32, 28, 64, 3, 1},  {64, 64, 14, 64, 3, 1},
    {64, 3, 32, 64, 3, 1},      {32, 64, 32, 64, 3, 1},  {32, 64, 32, 128, 3, 2}, {32, 128, 16, 128, 3, 1},
    {32, 256, 8, 256, 3, 1},    {32, 512, 4, 512, 3, 1}, {32, 64, 32, 128, 1, 2}, {32, 256, 14, 64, 1, 1},
    {32, 64, 28, 64, 3, 1, 64},
};

template <class T>
struct Tensor {
  std::vector<T> data;
  View view;
  Tensor(DType dtype, const Shape& s, bool channels_last) : data(s.numel()) {
    std::uint32_t seed = 1;
    for (T& x : data)
      x = T(static_cast<float>(static_cast<std::int32_t>(seed = seed * 1664525 + 1013904223)) * 0x1p-31F);
    view = {data.data(), dtype, s, contiguous_strides(s)};
    if (channels_last) view.strides = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
  }
};

struct Rates {
  double forward, input, weight;
};

template <class T>
Rates measure(const Case& c, DType dtype, bool channels_last) {
  Conv2dGeometry geometry;
  geometry.stride[0] = geometry.stride[1] = c.stride;
  geometry.padding[0] = geometry.padding[1] = c.padding();
  geometry.groups = c.groups;
  Tensor<T> x(dtype, {c.batch, c.inputs, c.size, c.size}, channels_last);
  Tensor<T> w(dtype, {c.outputs, c.inputs / c.groups, c.filter, c.filter}, false);
  Tensor<T> y(dtype, {c.batch, c.outputs, c.output_size(), c.output_size()}, channels_last);
  Tensor<T> dy = y;
  dy.view.data = dy.data.data();
  const auto rate = [&](auto&& f) { return c.gflop() / bench::median_seconds(f); };
  return {rate([&] { cpu::conv2d(y.view, x.view, w.view, View(), geometry); }),
          rate([&] { cpu::conv2d_backward_input(x.view, dy.view, w.view, View(), geometry); }),
          rate([&] { cpu::conv2d_backward_weight(w.view, x.view, dy.view, geometry); })};
}

double measure_eigen(const Case& c) {
  if (c.groups != 1) return 0;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t size = c.output_size();
  Matrix w = Matrix::Random(c.outputs, c.inputs * c.filter * c.filter), columns(w.cols(), size * size);
  Matrix y(c.outputs, size * size);
  const std::vector<float> x(c.batch * c.inputs * c.size * c.size, 0.5F);
  return c.gflop() / bench::median_seconds([&] {
           for (std::int64_t n = 0; n < c.batch; ++n) {
             for (std::int64_t k = 0; k < columns.rows(); ++k) {
               const std::int64_t r = k / c.filter % c.filter, s = k % c.filter;
               const float* plane = &x[(n * c.inputs + k / (c.filter * c.filter)) * c.size * c.size];
               for (std::int64_t i = 0; i < size; ++i)
                 for (std::int64_t j = 0; j < size; ++j) {
                   const std::int64_t h = i * c.stride + r - c.padding(), v = j * c.stride + s - c.padding();
                   columns(k, i * size + j) = h >= 0 && h < c.size && v >= 0 && v < c.size ? plane[h * c.size + v] : 0;
                 }
             }
             y.noalias() = w * columns;
           }
         });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  cpu::set_num_threads(threads);
  std::printf("%s kernels, %d thread(s); FMA peak %.0f GFLOP/s; Eigen uses one thread\n", cpu::kernels().isa, threads,
              bench::fma_peak());
  std::printf("y: forward, dx: input gradient, dw: weight gradient\n\n");
  std::printf("%-38s%-18s%-18s%-18s%-18s\n", "", "  channels-last f32", "  channels-last f16", "  NCHW f32",
              "  NCHW f16");
  std::printf("%-33s", "batch in->out size filter/stride");
  for (int i = 0; i < 4; ++i) std::printf("%7s%6s%6s", "y", "dx", "dw");
  std::printf("%8s\n", "Eigen");
  for (const Case& c : kCases) {
    char name[64];
    std::snprintf(name, sizeof name, "%ld  %ld->%ld  %ldx%ld  %ldx%ld/%ld%s", static_cast<long>(c.batch),
                  static_cast<long>(c.inputs), static_cast<long>(c.outputs), static_cast<long>(c.size),
                  static_cast<long>(c.size), static_cast<long>(c.filter), static_cast<long>(c.filter),
                  static_cast<long>(c.stride), c.groups > 1 ? " depthwise" : "");
    std::printf("%-33s", name);
    for (bool channels_last : {true, false})
      for (DType dtype : {f32, f16}) {
        const Rates rates = dtype == f32 ? measure<float>(c, f32, channels_last) : measure<half>(c, f16, channels_last);
        std::printf("%7.1f%6.1f%6.1f", rates.forward, rates.input, rates.weight);
        std::fflush(stdout);
      }
    std::printf("%8.1f\n", measure_eigen(c));
  }
}
