// The groups of an optimizer, and one step.

#include "optim/optimizer.h"

#include <cmath>

#include "optim/clip.h"

namespace halfgrad::optim {

Optimizer::Optimizer(std::string name, ParamGroup defaults, const std::vector<GroupSpec>& specs)
    : name_(std::move(name)), defaults_(std::move(defaults)) {
  regroup(specs);
}

ParamGroup Optimizer::make_group(const GroupSpec& spec) const {
  ParamGroup group = defaults_;
  group.lr = spec.lr.value_or(group.lr);
  group.weight_decay = spec.weight_decay.value_or(group.weight_decay);
  group.momentum = spec.momentum.value_or(group.momentum);
  group.beta2 = spec.beta2.value_or(group.beta2);
  group.trainable = spec.trainable;
  check(group.lr >= 0 && group.weight_decay >= 0 && group.momentum >= 0,
        "{}: lr is {}, weight_decay {}, momentum or beta1 {}; expected 0 or more", name_, group.lr, group.weight_decay,
        group.momentum);

  for (const Tensor& param : spec.params) {
    check(param.defined(), "{}: parameter {} of a group is undefined", name_, group.entries.size());
    check(param.is_leaf(), "{}: a parameter of shape {} was computed by an op; expected a leaf, see detach()", name_,
          param.shape());
    check(is_floating(param.dtype()), "{}: a parameter of shape {} is {}; expected a float dtype", name_, param.shape(),
          name_of(param.dtype()));
    group.entries.push_back({.param = param, .master = param, .state = {}});
  }
  return group;
}

void Optimizer::regroup(const std::vector<GroupSpec>& specs) {
  std::vector<ParamGroup> groups;
  for (const GroupSpec& spec : specs) groups.push_back(make_group(spec));

  std::map<const TensorImpl*, Entry*> entries;
  for (ParamGroup& group : groups)
    for (Entry& entry : group.entries)
      check(entries.try_emplace(entry.param.impl(), &entry).second,
            "{}: a parameter of shape {} is listed twice; list it in one group, once", name_, entry.param.shape());
  check(!entries.empty(), "{}: there is no parameter to optimize", name_);

  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries)
      if (const auto same = entries.find(entry.param.impl()); same != entries.end()) *same->second = std::move(entry);
  groups_ = std::move(groups);
  if (masters_) use_masters(flat_);
}

void Optimizer::set_lr(double lr) {
  for (ParamGroup& group : groups_) group.lr = lr;
}

void Optimizer::step(double grad_scale) { step(std::vector<double>(groups_.size(), grad_scale)); }

void Optimizer::step(const std::vector<double>& grad_scale_by_group) {
  check(grad_scale_by_group.size() == groups_.size(), "{}: step was given {} grad_scales for {} groups", name_,
        grad_scale_by_group.size(), groups_.size());
  for (const double grad_scale : grad_scale_by_group)
    check(std::isfinite(grad_scale), "{}: step was given grad_scale {}; expected a finite number", name_, grad_scale);
  const NoGrad guard;
  if (masters_) use_masters(flat_);  // for what was unfrozen since
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    ParamGroup& group = groups_[g];
    if (!group.trainable) continue;
    for (Entry& entry : group.entries)
      if (entry.param.grad().defined()) step_entry(group, entry, grad_scale_by_group[g]);
  }
}

void Optimizer::step_entry(ParamGroup& group, Entry& entry, double grad_scale) {
  // The pass is over dense memory in row-major order, which parameters and gradients nearly always have.
  const Tensor grad = entry.param.grad().contiguous();
  const Tensor param = entry.param.contiguous();
  const Tensor master = entry.has_master() ? entry.master : param;
  check(master.shape() == param.shape() && grad.device() == param.device() && master.device() == param.device(),
        "{}: a parameter has shape {} on {}, its master {} on {}, its gradient is on {}; give the model its "
        "final shapes and device before making the optimizer",
        name_, param.shape(), param.device(), master.shape(), master.device(), grad.device());

  update(group, entry,
         {.param = param.view_of_data(),
          .master = master.view_of_data(),
          .grad = grad.view_of_data(),
          .grad_scale = grad_scale,
          .lr = group.lr,
          .weight_decay = group.weight_decay});
  ++entry.steps;

  if (!param.is_same(entry.param)) entry.param.copy_(param);
  // A graph that still needs the old values finds out by the version.
  entry.param.impl()->storage->bump_version();
  if (entry.has_master()) entry.master.impl()->storage->bump_version();
}

Tensor& Optimizer::state(ParamGroup& group, Entry& entry, const std::string& name) {
  const Shape& shape = entry.master.shape();
  // f32 also for an f16 parameter without a master: in f16 a small gradient's square is 0.
  const DType dtype = entry.master.dtype() == f64 ? f64 : f32;
  Tensor& tensor = entry.state[name];
  if (!tensor.defined() && entry.flat_offset >= 0) {
    Tensor& flat = group.flat_state[name];
    if (!flat.defined()) flat = zeros_like(group.flat_master);
    tensor = flat.narrow(0, entry.flat_offset, shape.numel()).view(shape).zero_();
  } else if (!tensor.defined()) {
    tensor = zeros(shape, dtype, entry.master.device());
  }
  if (tensor.dtype() != dtype) tensor = tensor.to(dtype);  // the parameter went to f64 or came from there
  check(tensor.shape() == shape && tensor.device() == entry.master.device(),
        "{}: a parameter has shape {} on {}, its {} {} on {}; make a new optimizer for it", name_, shape,
        entry.master.device(), name, tensor.shape(), tensor.device());
  return tensor;
}

void Optimizer::zero_grad(bool set_to_none) {
  const NoGrad guard;
  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries) {
      Tensor grad = entry.param.grad();
      if (set_to_none) {
        entry.param.set_grad({});
      } else if (grad.defined()) {
        grad.zero_();
      }
    }
}

GradStats stats_of(const Tensors& grads) {
  const NoGrad guard;
  Tensor sums;  // on the gradients' device: one transfer at the end
  for (const Tensor& grad : grads) {
    if (!grad.defined()) continue;
    if (!sums.defined()) sums = zeros({2}, f64, grad.device());
    check(grad.device() == sums.device(), "grad_stats: gradients are on {} and on {}; expected one device",
          sums.device(), grad.device());
    backend_for(grad.device()).grad_stats(sums.view_of_data(), grad.contiguous().view_of_data());
  }
  if (!sums.defined()) return {};
  const std::vector<double> values = sums.to_vector<double>();
  return {.sum_of_squares = values[0], .non_finite = static_cast<std::int64_t>(values[1])};
}

std::vector<GradStats> Optimizer::grad_stats_by_group() const {
  std::vector<GradStats> result;
  for (const ParamGroup& group : groups_) {
    Tensors grads;
    if (group.trainable)
      for (const Entry& entry : group.entries) grads.push_back(entry.param.grad());
    result.push_back(stats_of(grads));
  }
  return result;
}

GradStats Optimizer::grad_stats() const { return total(grad_stats_by_group()); }

}  // namespace halfgrad::optim
