// Convolution and its input gradient as correlations.

#include "engine/cpu/conv.h"

#include "engine/cpu/conv_correlate.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/scratch.h"

namespace halfgrad::cpu {
namespace {

// The bias of all output channels as contiguous floats in `room`; null when there is none.
template <class T>
const float* widened(const View& bias, const Scratch& room) {
  if (!bias) return nullptr;
  // Staging one row of pixels is also how numbers of any stride become contiguous floats.
  StageArgs<T> args = {};
  args.image = bias.as<const T>();
  args.column = bias.strides[0];
  args.channels = args.height = args.rows = 1;
  args.width = args.columns = bias.shape[0];
  args.staged = room.as<float>();
  typed_kernels(kernels().conv, T()).stage(args);
  return room.as<float>();
}

template <class T>
void forward(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry& geometry,
             Activation activation) {
  Correlation<T> p{Images<const T>(x), Images<T>(y)};
  p.groups = geometry.groups;
  p.w = w.as<const T>();
  p.w_output = w.strides[0];
  p.w_input = w.strides[1];
  p.w_row = w.strides[2];
  p.w_column = w.strides[3];
  p.w_group = w.shape[0] / geometry.groups * w.strides[0];
  p.rows = forward_axis(y.shape[2], w.shape[2], geometry, 0);
  p.columns = forward_axis(y.shape[3], w.shape[3], geometry, 1);
  const Scratch wide_bias(bias ? y.shape[1] * sizeof(float) : 0);
  p.bias = widened<T>(bias, wide_bias);
  p.lowest = lowest_of(activation);
  correlate(std::move(p));
}

// The positions h = phase, phase + stride, ... of dx. Position h got its share of dy at (h + padding - tap *
// dilation) / stride from every tap for which that is a whole number; those are the same taps for all h of a
// phase. There is at least one such position.
Axis backward_axis(std::int64_t inputs, std::int64_t filter, std::int64_t phase, const Conv2dGeometry& geometry,
                   int d) {
  Axis axis;
  axis.count = divide_up(inputs - phase, geometry.stride[d]);
  for (std::int64_t tap = filter - 1; tap >= 0; --tap) {
    const std::int64_t position = phase + geometry.padding[d] - tap * geometry.dilation[d];
    if (position % geometry.stride[d] != 0) continue;
    axis.offsets.push_back(position / geometry.stride[d]);
    axis.taps.push_back(tap);
  }
  return axis;
}

template <class T>
void backward_input(const View& dx, const View& dy, const View& w, const View& bias, const Conv2dGeometry& geometry) {
  const Scratch room(bias ? dx.shape[1] * sizeof(float) : 0);
  const float* wide_bias = widened<T>(bias, room);
  if (has_few_inputs(dx, dy, w, geometry)) return backward_few_inputs<T>(dx, dy, w, wide_bias, geometry);
  for (std::int64_t row_phase = 0; row_phase < std::min(geometry.stride[0], dx.shape[2]); ++row_phase)
    for (std::int64_t column_phase = 0; column_phase < std::min(geometry.stride[1], dx.shape[3]); ++column_phase) {
      Correlation<T> p{Images<const T>(dy), Images<T>(dx)};
      p.groups = geometry.groups;
      p.w = w.as<const T>();
      p.w_output = w.strides[1];  // inputs and outputs of the forward pass change places
      p.w_input = w.strides[0];
      p.w_row = w.strides[2];
      p.w_column = w.strides[3];
      p.w_group = w.shape[0] / geometry.groups * w.strides[0];
      p.rows = backward_axis(dx.shape[2], w.shape[2], row_phase, geometry, 0);
      p.columns = backward_axis(dx.shape[3], w.shape[3], column_phase, geometry, 1);
      p.bias = wide_bias;
      p.target.data += row_phase * p.target.row + column_phase * p.target.column;
      p.target.row *= geometry.stride[0];
      p.target.column *= geometry.stride[1];
      correlate(std::move(p));
    }
}

}  // namespace

void conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry& geometry,
            Activation activation) {
  if (y.numel() == 0) return;
  switch (y.dtype) {
    case f16:
      return forward<std::uint16_t>(y, x, w, bias, geometry, activation);
    case f64:
      return conv2d_f64(y, x, w, bias, geometry, activation);
    default:
      return forward<float>(y, x, w, bias, geometry, activation);
  }
}

void conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias,
                           const Conv2dGeometry& geometry) {
  if (dx.numel() == 0) return;
  switch (dx.dtype) {
    case f16:
      return backward_input<std::uint16_t>(dx, dy, w, bias, geometry);
    case f64:
      return conv2d_backward_input_f64(dx, dy, w, bias, geometry);
    default:
      return backward_input<float>(dx, dy, w, bias, geometry);
  }
}

}  // namespace halfgrad::cpu

namespace halfgrad {

void CpuBackend::conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry& geometry,
                        Activation activation) {
  cpu::conv2d(y, x, w, bias, geometry, activation);
}
void CpuBackend::conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias,
                                       const Conv2dGeometry& geometry) {
  cpu::conv2d_backward_input(dx, dy, w, bias, geometry);
}
void CpuBackend::conv2d_backward_weight(const View& dw, const View& x, const View& dy, const Conv2dGeometry& geometry) {
  cpu::conv2d_backward_weight(dw, x, dy, geometry);
}

}  // namespace halfgrad
