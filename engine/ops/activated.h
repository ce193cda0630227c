#pragma once
// Ops that end with an activation: one pass computes both, and the gradient first goes back through the activation.

#include "engine/activation.h"
#include "engine/autograd.h"
#include "engine/ops/elementwise.h"

namespace halfgrad::detail {

/// record() for a result y to which `activation` was applied at the end; `gradient(dz)` is that of what came before.
template <class F>
Tensor record_activated(const char* name, const Tensor& y, OpInputs inputs, F gradient, Activation activation) {
  if (activation == Activation::none) return record(name, y, inputs, std::move(gradient));
  return record(name, y, inputs, [gradient = std::move(gradient)](const Tensor& dy, const Tensor& y) {
    return gradient(relu_gradient(dy, y));
  });
}

}  // namespace halfgrad::detail
