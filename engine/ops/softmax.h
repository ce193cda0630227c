#pragma once
// Softmax along a dimension. The largest element is subtracted first, so that nothing overflows; f16 is
// computed in f32 and rounded once. A line that is -infinity throughout, or that holds +infinity or NaN,
// gives NaN, as in PyTorch.

#include "engine/tensor.h"

namespace halfgrad {

/// e^x / sum of e^x along dim.
Tensor softmax(const Tensor& x, std::int64_t dim);
/// log(softmax(x)), without the underflow.
Tensor log_softmax(const Tensor& x, std::int64_t dim);

}  // namespace halfgrad
