#pragma once
// Stochastic gradient descent, as torch.optim.SGD.

#include "optim/optimizer.h"

namespace halfgrad::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

///   g   = grad + weight_decay * w
///   buf = momentum * buf + (1 - dampening) * g      (the first time: buf = g)
///   w   = w - lr * (nesterov ? g + momentum * buf : buf)
/// Without momentum, w - lr * g.
class SGD : public Optimizer {
 public:
  explicit SGD(const std::vector<GroupSpec>& groups, SGDOptions options = {});
  explicit SGD(const Tensors& params, SGDOptions options = {});

 protected:
  std::array<std::string, 2> state_names(const ParamGroup& group) const override;
  void update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const override;

 private:
  double dampening_;
  bool nesterov_;
};

OptimizerFactory sgd(SGDOptions options = {});

}  // namespace halfgrad::optim
