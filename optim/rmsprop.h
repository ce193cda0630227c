#pragma once
// RMSprop (Tieleman and Hinton, Coursera lecture 6.5, 2012), as torch.optim.RMSprop; not centered.

#include "optim/optimizer.h"

namespace halfgrad::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
};

///   g   = grad + weight_decay * w
///   v   = alpha * v + (1 - alpha) * g^2             "square_avg"
///   buf = momentum * buf + g / (sqrt(v) + eps)      "momentum_buffer"
///   w   = w - lr * buf                              (without momentum, buf is not kept)
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const std::vector<GroupSpec>& groups, RMSpropOptions options = {});
  explicit RMSprop(const Tensors& params, RMSpropOptions options = {});

 protected:
  std::array<std::string, 2> state_names(const ParamGroup& group) const override;
  void update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const override;

 private:
  double eps_;
};

OptimizerFactory rmsprop(RMSpropOptions options = {});

}  // namespace halfgrad::optim
