#pragma once
// Convolution in two dimensions, as deep learning means it (cross-correlation: the kernel is not flipped), and its
// transpose.

#include "engine/activation.h"
#include "engine/ops/window.h"
#include "engine/tensor.h"

namespace halfgrad {

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;  ///< zeros on each side
  Pair dilation = 1;
  std::int64_t groups = 1;  ///< the channels are cut into so many groups that do not see each other
};

/// y[n, o, i, j] = activation(bias[o] + sum over c, r, s of x[n, c, i*stride - padding + r*dilation, ...] * weight[o, c,
/// r, s]). x [N, C, H, W] or [C, H, W], weight [O, C/groups, R, S], bias [O] or undefined, all of one float
/// dtype. The result [N, O, OH, OW] lies in memory channels-last. f16 is summed in f32 and rounded once.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dOptions& options = {},
              Activation activation = Activation::none);

// The two halves of its gradient. Each is linear in both of its tensors, and its own gradient is again one of
// these three functions, so convolutions can be differentiated any number of times.

/// The gradient [N, C, H, W] = x_shape with respect to x, from dy [N, O, OH, OW].
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options = {});
/// The gradient [O, C/groups, R, S] = weight_shape with respect to weight, from x and dy.
Tensor conv2d_weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                              const Conv2dOptions& options = {});

struct ConvTranspose2dOptions {
  Pair stride = 1;
  Pair padding = 0;         ///< rows and columns cut off on each side
  Pair output_padding = 0;  ///< rows and columns added at the end, less than stride or dilation
  Pair dilation = 1;
  std::int64_t groups = 1;
};

/// Transposed convolution, conv2d_input_gradient with a bias: every x[n, c, i, j] adds itself times weight[c, o, r, s]
/// to y[n, o, i*stride - padding + r*dilation, ...]. x [N, C, H, W] or [C, H, W], weight [C, O/groups, R, S], bias [O]
/// or undefined, all of one float dtype. The result [N, O, OH, OW] lies in memory channels-last, OH = (H - 1)*stride -
/// 2*padding + dilation*(R - 1) + output_padding + 1. f16 is summed in f32, bias included, and rounded once.
/// For equal options, and an output_padding that makes the shapes fit, <conv2d(x, w), y> = <x, conv_transpose2d(y, w)>.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

}  // namespace halfgrad
