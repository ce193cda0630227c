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

std::array<std::string, 2> SGD::state_names(const ParamGroup& group) const {
  return {group.momentum != 0 ? "momentum_buffer" : "", ""};
}

void SGD::update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const {
  backend.sgd_step(steps, control, dampening_, nesterov_);
}

OptimizerFactory sgd(SGDOptions options) {
  return [options](const std::vector<GroupSpec>& groups) { return std::make_unique<SGD>(groups, options); };
}

}  // namespace halfgrad::optim
