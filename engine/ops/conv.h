#pragma once
// Convolution in two dimensions, as deep learning means it (cross-correlation: the kernel is not flipped).

#include "engine/ops/window.h"
#include "engine/tensor.h"

namespace halfgrad {

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;  ///< zeros on each side
  Pair dilation = 1;
  std::int64_t groups = 1;  ///< the channels are cut into so many groups that do not see each other
};

/// y[n, o, i, j] = bias[o] + sum over c, r, s of x[n, c, i*stride - padding + r*dilation, ...] * weight[o, c,
/// r, s]. x [N, C, H, W] or [C, H, W], weight [O, C/groups, R, S], bias [O] or undefined, all of one float
/// dtype. The result [N, O, OH, OW] lies in memory channels-last. f16 is summed in f32 and rounded once.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dOptions& options = {});

// The two halves of its gradient. Each is linear in both of its tensors, and its own gradient is again one of
// these three functions, so convolutions can be differentiated any number of times.

/// The gradient [N, C, H, W] = x_shape with respect to x, from dy [N, O, OH, OW] (a transposed convolution of
/// dy).
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options = {});
/// The gradient [O, C/groups, R, S] = weight_shape with respect to weight, from x and dy.
Tensor conv2d_weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                              const Conv2dOptions& options = {});

}  // namespace halfgrad
