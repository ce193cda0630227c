#include "nn/linear.h"

#include "engine/ops/matmul.h"
#include "nn/init.h"

namespace halfgrad::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options) {
  check(in_features > 0 && out_features > 0, "Linear: {} input and {} output features, expected at least one of each",
        in_features, out_features);
  weight = empty({out_features, in_features});
  if (options.bias) bias = empty({out_features});
  init::default_(weight, bias);
}

bool Linear::applies(Activation) const { return is_exactly<Linear>(*this); }

Tensor Linear::forward_activated(const Tensor& x, Activation activation) { return linear(x, weight, bias, activation); }

void Linear::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
}

std::string Linear::extra_repr() const {
  return fmt::format("{}, {}{}", weight.size(1), weight.size(0), bias.defined() ? "" : ", bias=false");
}

}  // namespace halfgrad::nn
