#include "callbacks/gan/module.h"

#include "engine/ops/elementwise.h"

namespace halfgrad {

namespace {
Tensor run(nn::Module& network, const Tensor& x) {
  return network(is_floating(x.dtype()) ? cast(x, network.dtype()) : x);
}
}  // namespace

void GANModule::visit(nn::Visitor& v) {
  v.module("generator", *generator_);
  v.module("critic", *critic_);
}

Tensor GANModule::generate(const Tensor& noise) const { return run(*generator_, noise); }
Tensor GANModule::criticize(const Tensor& images) const { return run(*critic_, images); }

}  // namespace halfgrad
