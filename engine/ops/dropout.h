#pragma once

#include "engine/tensor.h"

namespace halfgrad {

/// While training, each element becomes zero with probability p, else it is divided by 1 - p, so that the
/// expectation stays; otherwise x itself. Draws from the default generator.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace halfgrad
