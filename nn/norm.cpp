#include "engine/ops/norm.h"

#include "nn/norm.h"

namespace halfgrad::nn {

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormOptions& options) : options(options) {
  check(channels > 0, "BatchNorm: {} channels, expected at least one", channels);
  weight = ones({channels}).requires_grad_();
  bias = zeros({channels}).requires_grad_();
  running_mean = zeros({channels});
  running_var = ones({channels});
}

bool BatchNorm::applies(Activation) const { return is_exactly<BatchNorm1d>(*this) || is_exactly<BatchNorm2d>(*this); }

Tensor BatchNorm::forward_activated(const Tensor& x, Activation activation) {
  check(takes_rank(x.rank()), "x is {}; BatchNorm1d takes [N, C] and [N, C, L], BatchNorm2d takes [N, C, H, W]",
        x.shape());
  return batch_norm(x, weight, bias, running_mean, running_var, is_training(), options.momentum, options.eps,
                    activation);
}

void BatchNorm::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
  v.buffer("running_mean", running_mean);
  v.buffer("running_var", running_var);
}

std::string BatchNorm::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}", weight.size(0), options.eps, options.momentum);
}

LayerNorm::LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options) : options(options) {
  check(!normalized_shape.empty() && normalized_shape.numel() > 0,
        "LayerNorm: normalized_shape is {}, expected at least one dimension and no empty one", normalized_shape);
  weight = ones(normalized_shape).requires_grad_();
  bias = zeros(normalized_shape).requires_grad_();
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight.shape(), weight, bias, options.eps); }

void LayerNorm::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
}

std::string LayerNorm::extra_repr() const { return fmt::format("{}, eps={}", weight.shape().str(), options.eps); }

}  // namespace halfgrad::nn
