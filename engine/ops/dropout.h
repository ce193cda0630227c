#pragma once

#include "engine/tensor.h"

namespace halfgrad {

/// While training, each element is multiplied by zero with probability p, else by 1/(1 - p), so that the expectation
/// stays; otherwise x itself. As in PyTorch, what is infinite or NaN becomes NaN when it is dropped. Draws from the default
/// generator.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace halfgrad
