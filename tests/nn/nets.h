#pragma once
// Small networks that several tests of nn use.

#include "engine/ops/elementwise.h"
#include "nn/nn.h"

namespace halfgrad::testing {

/// A module written by hand, as short as it gets.
struct Net : nn::Module {
  nn::Linear a{4, 3}, b{3, 2};
  Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
  void visit(nn::Visitor& v) override {
    v.module("a", a);
    v.module("b", b);
  }
};

/// One whose parts have all kinds of members.
struct Mixed : nn::Module {
  nn::Sequential features{nn::Conv2d(1, 2, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(2), nn::ReLU()};
  Tensor scale = full({1}, 0.1).requires_grad_();
  Tensor counts = tensor({1, 2, 3}, i64);
  Tensor forward(const Tensor& x) override { return features(x) * scale; }
  void visit(nn::Visitor& v) override {
    v.parameter("scale", scale);
    v.buffer("counts", counts);
    v.module("features", features);
  }
};

inline std::vector<std::string> names_of(const nn::NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

inline std::vector<std::string> names_of(const nn::NamedModules& named) {
  std::vector<std::string> names;
  for (const auto& [name, module] : named) names.push_back(name);
  return names;
}

}  // namespace halfgrad::testing
