#pragma once
// Kernels of batch and layer normalisation. In all tables a dtype is the index of its DType: f16, f32, f64.
// "Number" is float for f16 and f32, double for f64.

#include <cstdint>

namespace halfgrad::cpu {

/// Channels times positions: element (w, i) is at w * width + i * length.
struct TileStrides {
  std::int64_t width = 0, length = 0;
};

struct NormKernels {
  /// out[0] = how many positions; for each channel out[width + w] = the mean, out[2 * width + w] = the sum of
  /// squared distances from it.
  using Moments = void (*)(double* out, const void* x, std::int64_t width, std::int64_t length, TileStrides strides);
  Moments moments[3];

  /// y = (x - mean[w]) * scale[w] + shift[w], or `lowest` if that is more; the arrays hold Numbers.
  using Normalize = void (*)(void* y, const void* x, std::int64_t width, std::int64_t length, TileStrides y_strides,
                             TileStrides x_strides, const void* mean, const void* scale, const void* shift,
                             float lowest);
  Normalize normalize[3];

  // In the second row of both tables a ReLU follows: dy counts as 0 where the result, (x - mean[w]) * scale[w] + bias[w]
  // rounded to its dtype, is not positive. In the first row bias is not looked at.

  /// out[w] = sum of dy, out[width + w] = sum of dy * (x - mean[w]).
  using GradientSums = void (*)(double* out, const void* dy, const void* x, std::int64_t width, std::int64_t length,
                                TileStrides dy_strides, TileStrides x_strides, const void* mean, const void* scale,
                                const void* bias);
  GradientSums gradient_sums[2][3];

  /// dx = dy * scale[w] + (x - mean[w]) * slope[w] + shift[w]
  using Gradient = void (*)(void* dx, const void* dy, const void* x, std::int64_t width, std::int64_t length,
                            TileStrides dx_strides, TileStrides dy_strides, TileStrides x_strides, const void* mean,
                            const void* scale, const void* bias, const void* slope, const void* shift);
  Gradient gradient[2][3];

  /// One row of n elements: y = (x - mean) * rstd * weight + bias; writes mean and rstd. weight and bias hold
  /// n Numbers, buffer has room for n.
  using LayerNorm = void (*)(void* y, void* mean, void* rstd, const void* x, std::int64_t n, std::int64_t y_stride,
                             std::int64_t x_stride, const void* weight, const void* bias, double eps, void* buffer);
  LayerNorm layer_norm[3];

  /// The gradient of one row. Adds dy * (x - mean) * rstd to dweight and dy to dbias (n Numbers each); dx may
  /// be null. buffer has room for 2 n.
  using LayerNormBackward = void (*)(void* dx, void* dweight, void* dbias, const void* dy, const void* x,
                                     std::int64_t n, std::int64_t dx_stride, std::int64_t dy_stride,
                                     std::int64_t x_stride, double mean, double rstd, const void* weight, void* buffer);
  LayerNormBackward layer_norm_backward[3];
};

}  // namespace halfgrad::cpu
