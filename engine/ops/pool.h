#pragma once
// Pooling in two dimensions: x [N, C, H, W] or [C, H, W] of a float dtype. The result keeps the memory layout
// of x.

#include "engine/ops/window.h"
#include "engine/tensor.h"

namespace halfgrad {

struct PoolOptions {
  Pair stride = 0;                ///< 0: the kernel's size, windows side by side
  Pair padding = 0;               ///< at most half the kernel
  Pair dilation = 1;              ///< max_pool2d only
  bool count_include_pad = true;  ///< avg_pool2d: padding counts, as zeros
};

/// The maximum of each window; padding never wins, a NaN always does. The gradient goes to the first maximum.
Tensor max_pool2d(const Tensor& x, Pair kernel, const PoolOptions& options = {});

/// The mean of each window, summed in f32 (f64 for f64).
Tensor avg_pool2d(const Tensor& x, Pair kernel, const PoolOptions& options = {});

/// The means of output.h * output.w windows that divide the plane as evenly as possible: window i covers the
/// rows from floor(i*H/OH) to ceil((i+1)*H/OH), excluded. {1, 1} is the mean of the whole plane.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output);

}  // namespace halfgrad
