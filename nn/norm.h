#pragma once

#include "nn/module.h"

namespace halfgrad::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< the share of the new batch in the running statistics
};

/// Normalises each channel of x [N, C, *], see batch_norm(). Parameters and statistics stay f32 when a model
/// becomes f16: x and the result are f16 then, the arithmetic between them f32.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override { return forward_activated(x, Activation::none); }
  void visit(Visitor& v) override;
  bool keeps_float() const override { return true; }
  std::string extra_repr() const override;

  BatchNormOptions options;
  Tensor weight, bias;               ///< [C], at first 1 and 0
  Tensor running_mean, running_var;  ///< [C], at first 0 and 1

 protected:
  BatchNorm(std::int64_t channels, const BatchNormOptions& options);
  virtual bool takes_rank(int rank) const = 0;
  bool applies(Activation) const override;
  Tensor forward_activated(const Tensor& x, Activation activation) override;
};

/// x [N, C] or [N, C, L].
class BatchNorm1d : public BatchNorm {
 public:
  BatchNorm1d(std::int64_t channels, const BatchNormOptions& options = {}) : BatchNorm(channels, options) {}

 protected:
  bool takes_rank(int rank) const override { return rank == 2 || rank == 3; }
};

/// x [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  BatchNorm2d(std::int64_t channels, const BatchNormOptions& options = {}) : BatchNorm(channels, options) {}

 protected:
  bool takes_rank(int rank) const override { return rank == 4; }
};

struct LayerNormOptions {
  double eps = 1e-5;
};

/// Normalises each sample over its last dimensions, see layer_norm().
class LayerNorm : public Module {
 public:
  LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  LayerNorm(std::int64_t features, const LayerNormOptions& options = {}) : LayerNorm(Shape{features}, options) {}
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string extra_repr() const override;

  LayerNormOptions options;
  Tensor weight, bias;  ///< normalized_shape, at first 1 and 0
};

}  // namespace halfgrad::nn
