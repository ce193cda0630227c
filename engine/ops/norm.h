#pragma once
// Normalisation layers as functions. x may be f16 while parameters and statistics are f32: the arithmetic is
// f32 (f64 for an f64 x) and the result has x's dtype and memory layout.

#include "engine/activation.h"
#include "engine/tensor.h"

namespace halfgrad {

/// y = activation((x - mean) / sqrt(var + eps) * weight + bias) for each channel of x [N, C, *] (Ioffe and Szegedy,
/// 2015).
///
/// weight, bias, running_mean, running_var: [C], float, each may be undefined. In training mean and var are
/// those of the batch, and running = (1 - momentum) * running + momentum * batch is updated in place, with
/// the unbiased variance; a batch whose statistics are not all finite leaves it alone. Otherwise they are the
/// running ones (those of the batch when there are none). Throws Error in training when a channel has a
/// single value.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum = 0.1, double eps = 1e-5,
                  Activation activation = Activation::none);

/// The same over the last dimensions of x, which must be `normalized_shape` (Ba, Kiros and Hinton, 2016).
/// weight and bias have that shape, or are undefined.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

}  // namespace halfgrad
