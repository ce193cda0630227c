// The parts of a Learner about layer groups: splitting a model, and freezing its first parts.

#include <set>

#include "callbacks/learner.h"
#include "nn/norm.h"

namespace halfgrad {

namespace {

// The parameters of a module itself, without those of its children.
struct OwnParameters : nn::Visitor {
  explicit OwnParameters(nn::Module& module) { module.visit(*this); }
  void parameter(const std::string&, Tensor& parameter) override {
    if (parameter.defined()) found.push_back(parameter);
  }
  Tensors found;
};

}  // namespace

Learner& Learner::split(const std::vector<std::string>& first_modules) {
  check(optimizers_.size() == 1, "split: the Learner has {} optimizers; layer groups are for one", optimizers_.size());
  std::vector<optim::GroupSpec> groups(1);
  std::set<const TensorImpl*> seen;
  auto next = first_modules.begin();
  for (const auto& [path, module] : model_.named_modules()) {
    if (next != first_modules.end() && path == *next) {
      groups.emplace_back();
      ++next;
    }
    for (const Tensor& parameter : OwnParameters(*module).found)
      if (seen.insert(parameter.impl()).second) groups.back().params.push_back(parameter);
  }
  check(next == first_modules.end(),
        "split: the model has no module '{}' after the ones before it in the list; its str() shows the paths",
        next == first_modules.end() ? "" : *next);
  for (std::size_t i = 0; i < groups.size(); ++i)
    check(!groups[i].params.empty(), "split: layer group {} of {} has no parameters; split at modules that have some",
          i, groups.size());
  optimizer().regroup(groups);
  return *this;
}

Learner& Learner::freeze_to(int n) {
  check(optimizers_.size() == 1, "freeze_to: the Learner has {} optimizers; layer groups are for one",
        optimizers_.size());
  const std::vector<optim::ParamGroup>& groups = optimizer().groups();
  const int count = static_cast<int>(groups.size());
  check(n >= -count && n <= count, "freeze_to: group {} of {}; expected {} to {}", n, count, -count, count);
  std::set<const TensorImpl*> of_batchnorm;
  for (const auto& [path, module] : model_.named_modules())
    if (dynamic_cast<nn::BatchNorm*>(module))
      for (const Tensor& parameter : OwnParameters(*module).found) of_batchnorm.insert(parameter.impl());
  for (int g = 0; g < count; ++g)
    for (const optim::Entry& entry : groups[static_cast<std::size_t>(g)].entries) {
      const bool frozen = g < (n < 0 ? count + n : n);
      Tensor parameter = entry.param;
      parameter.requires_grad_(!frozen || (options_.train_bn && of_batchnorm.contains(parameter.impl())));
    }
  return *this;
}

}  // namespace halfgrad
