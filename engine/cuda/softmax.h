#pragma once
// The kernels of softmax and layer normalisation. softmax.cpp and layer_norm.cpp make their plans.

#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

/// Computed in `compute`: f32 or f64.
void softmax(DType compute, bool log, const Lines&, const Queue&);           // x, y
void softmax_backward(DType compute, bool log, const Lines&, const Queue&);  // y, dy, dx

}  // namespace halfgrad::cuda
