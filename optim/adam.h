#pragma once
// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015) and AdamW (Loshchilov and Hutter,
// "Decoupled weight decay regularization", 2019), as torch.optim.Adam and AdamW.

#include "optim/optimizer.h"

namespace halfgrad::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

///   g = grad + weight_decay * w
///   m = beta1 * m + (1 - beta1) * g                 "exp_avg"
///   v = beta2 * v + (1 - beta2) * g^2               "exp_avg_sq"
///   w = w - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)     at the parameter's step t = 1, 2,
///   ...
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<GroupSpec>& groups, AdamOptions options = {});
  explicit Adam(const Tensors& params, AdamOptions options = {});

 protected:
  Adam(const char* name, const std::vector<GroupSpec>& groups, AdamOptions options, bool decoupled);
  std::array<std::string, 2> state_names(const ParamGroup& group) const override;
  void update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const override;

 private:
  double eps_;
  bool decoupled_;
};

/// Adam with g = grad, and weight decay apart from the gradient's statistics: w = (1 - lr * weight_decay) * w
/// first. This is fastai's "true weight decay".
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<GroupSpec>& groups, AdamWOptions options = {});
  explicit AdamW(const Tensors& params, AdamWOptions options = {});
};

OptimizerFactory adam(AdamOptions options = {});
OptimizerFactory adamw(AdamWOptions options = {});

}  // namespace halfgrad::optim
