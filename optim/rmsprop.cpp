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

void RMSprop::update(ParamGroup& group, Entry& entry, const OptimizerStep& work) {
  const View square_avg = state(group, entry, "square_avg").view_of_data();
  const View buffer = group.momentum != 0 ? state(group, entry, "momentum_buffer").view_of_data() : View();
  backend_for(entry.param.device()).rmsprop_step(work, square_avg, buffer, group.beta2, eps_, group.momentum);
}

OptimizerFactory rmsprop(RMSpropOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<RMSprop>(groups, options); };
}

}  // namespace halfgrad::optim
