#include "nn/container.h"

#include "engine/ops/elementwise.h"

namespace halfgrad::nn {

Module& Sequential::operator[](std::size_t i) const {
  check(i < layers_.size(), "Sequential: layer {} of {}; they count from 0", i, layers_.size());
  return *layers_[i];
}

Tensor Sequential::run(Tensor x, std::size_t first, Activation activation) {
  for (std::size_t i = first; i < layers_.size(); ++i) {
    Module& layer = *layers_[i];
    const bool is_last = i + 1 == layers_.size();
    const Activation next = is_last ? activation : layers_[i + 1]->as_activation();
    if (layer.can_apply(next)) {
      x = layer(x, next);
      if (!is_last) ++i;
    } else {
      x = layer(x);
    }
  }
  return x;
}

bool Sequential::applies(Activation activation) const {
  return is_exactly<Sequential>(*this) && !layers_.empty() && layers_.back()->can_apply(activation);
}

Tensor Sequential::forward_many(const Tensors& inputs) {
  check(!layers_.empty(), "{} inputs, but there is no layer to take them", inputs.size());
  return run((*layers_[0])(inputs), 1, Activation::none);
}

void Sequential::visit(Visitor& v) {
  for (std::size_t i = 0; i < layers_.size(); ++i) v.module(std::to_string(i), *layers_[i]);
}

Tensor Residual::forward(const Tensor& x) {
  const Tensor y = main()(x), skipped = shortcut()(x);
  check(y.shape() == skipped.shape(), "main gives {} but shortcut {}; a 1x1 Conv2d in the shortcut can adapt it",
        y.shape(), skipped.shape());
  return y + skipped;
}

void Residual::visit(Visitor& v) {
  v.module("main", *main_);
  v.module("shortcut", *shortcut_);
}

}  // namespace halfgrad::nn
