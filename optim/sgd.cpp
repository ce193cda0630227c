#include "optim/sgd.h"

namespace halfgrad::optim {

namespace {
ParamGroup defaults_of(const SGDOptions& options) {
  ParamGroup group;
  group.lr = options.lr;
  group.weight_decay = options.weight_decay;
  group.momentum = options.momentum;
  return group;
}
}  // namespace

SGD::SGD(const std::vector<GroupSpec>& groups, SGDOptions options)
    : Optimizer("SGD", defaults_of(options), groups), dampening_(options.dampening), nesterov_(options.nesterov) {
  check(!nesterov_ || (options.momentum > 0 && dampening_ == 0),
        "SGD: nesterov was asked for with momentum {} and dampening {}; it needs momentum > 0 and dampening 0",
        options.momentum, dampening_);
}

SGD::SGD(const Tensors& params, SGDOptions options) : SGD(std::vector{GroupSpec{.params = params}}, options) {}

void SGD::update(ParamGroup& group, Entry& entry, const OptimizerStep& work) {
  const bool first = !entry.state.contains("momentum_buffer");
  const View buffer = group.momentum != 0 ? state(group, entry, "momentum_buffer").view_of_data() : View();
  backend_for(entry.param.device()).sgd_step(work, buffer, group.momentum, dampening_, nesterov_, first);
}

OptimizerFactory sgd(SGDOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<SGD>(groups, options); };
}

}  // namespace halfgrad::optim
