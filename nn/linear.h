#pragma once

#include "nn/module.h"

namespace halfgrad::nn {

struct LinearOptions {
  bool bias = true;
};

/// y = x * weight^T + bias: x [..., in_features] -> [..., out_features].
class Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward_activated(x, Activation::none); }
  void visit(Visitor& v) override;
  std::string extra_repr() const override;

  Tensor weight;  ///< [out_features, in_features]
  Tensor bias;    ///< [out_features], or undefined

 protected:
  bool applies(Activation) const override;
  Tensor forward_activated(const Tensor& x, Activation activation) override;
};

}  // namespace halfgrad::nn
