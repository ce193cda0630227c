#include "nn/container.h"

#include "engine/ops/elementwise.h"

namespace halfgrad::nn {

Module& Sequential::operator[](std::size_t i) const {
  check(i < layers_.size(), "Sequential: layer {} of {}; they count from 0", i, layers_.size());
  return *layers_[i];
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const AnyModule& layer : layers_) y = (*layer)(y);
  return y;
}

Tensor Sequential::forward_many(const Tensors& inputs) {
  check(!layers_.empty(), "{} inputs, but there is no layer to take them", inputs.size());
  Tensor y = (*layers_[0])(inputs);
  for (std::size_t i = 1; i < layers_.size(); ++i) y = (*layers_[i])(y);
  return y;
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
