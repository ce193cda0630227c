#include "optim/adam.h"

namespace halfgrad::optim {

namespace {
ParamGroup defaults_of(const AdamOptions& options) {
  ParamGroup group;
  group.lr = options.lr;
  group.weight_decay = options.weight_decay;
  group.momentum = options.beta1;
  group.beta2 = options.beta2;
  return group;
}

AdamOptions adam_options(const AdamWOptions& options) {
  return {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay};
}
}  // namespace

Adam::Adam(const char* name, const std::vector<GroupSpec>& groups, AdamOptions options, bool decoupled)
    : Optimizer(name, defaults_of(options), groups), eps_(options.eps), decoupled_(decoupled) {
  check(eps_ >= 0, "{}: eps is {}; expected 0 or more", name, eps_);
  for (const ParamGroup& group : this->groups())
    for (const double beta : {group.momentum, group.beta2})
      check(beta >= 0 && beta < 1, "{}: a beta is {}; expected 0 <= beta < 1", name, beta);
}

Adam::Adam(const std::vector<GroupSpec>& groups, AdamOptions options) : Adam("Adam", groups, options, false) {}
Adam::Adam(const Tensors& params, AdamOptions options) : Adam(std::vector{GroupSpec{.params = params}}, options) {}

AdamW::AdamW(const std::vector<GroupSpec>& groups, AdamWOptions options)
    : Adam("AdamW", groups, adam_options(options), true) {}
AdamW::AdamW(const Tensors& params, AdamWOptions options) : AdamW(std::vector{GroupSpec{.params = params}}, options) {}

std::array<std::string, 2> Adam::state_names(const ParamGroup&) const { return {"exp_avg", "exp_avg_sq"}; }

void Adam::update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const {
  backend.adam_step(steps, control, eps_, decoupled_);
}

OptimizerFactory adam(AdamOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<Adam>(groups, options); };
}

OptimizerFactory adamw(AdamWOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<AdamW>(groups, options); };
}

}  // namespace halfgrad::optim
