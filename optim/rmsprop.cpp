#include "optim/rmsprop.h"

namespace halfgrad::optim {

namespace {
ParamGroup defaults_of(const RMSpropOptions& options) {
  ParamGroup group;
  group.lr = options.lr;
  group.weight_decay = options.weight_decay;
  group.momentum = options.momentum;
  group.beta2 = options.alpha;
  return group;
}
}  // namespace

RMSprop::RMSprop(const std::vector<GroupSpec>& groups, RMSpropOptions options)
    : Optimizer("RMSprop", defaults_of(options), groups), eps_(options.eps) {
  check(eps_ >= 0, "RMSprop: eps is {}; expected 0 or more", eps_);
  for (const ParamGroup& group : this->groups())
    check(group.beta2 >= 0, "RMSprop: alpha is {}; expected 0 or more", group.beta2);
}

RMSprop::RMSprop(const Tensors& params, RMSpropOptions options)
    : RMSprop(std::vector{GroupSpec{.params = params}}, options) {}

std::array<std::string, 2> RMSprop::state_names(const ParamGroup& group) const {
  return {"square_avg", group.momentum != 0 ? "momentum_buffer" : ""};
}

void RMSprop::update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const {
  backend.rmsprop_step(steps, control, eps_);
}

OptimizerFactory rmsprop(RMSpropOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<RMSprop>(groups, options); };
}

}  // namespace halfgrad::optim
