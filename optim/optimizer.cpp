// The groups of an optimizer, and one step.

#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/elementwise.h"
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

// --- one step --------------------------------------------------------------------------------------------------------

bool Optimizer::step(const StepOptions& options) {
  check(std::isfinite(options.grad_scale), "{}: step was given grad_scale {}; expected a finite number", name_,
        options.grad_scale);
  const NoGrad guard;
  if (masters_) use_masters(flat_);  // for what was unfrozen since
  collect();
  write_hyperparameters();
  decide(options);
  auto* const control = static_cast<GroupControl*>(control_.raw_data());
  // The host can see what was decided only if it is the device.
  const bool skipped = device_.is_cpu() && control->skip != 0;
  if (!skipped) {
    make_state();
    std::vector<OptimizerStep> steps;
    steps.reserve(stepped_.size());
    for (const Stepped& s : stepped_) {
      OptimizerStep& step =
          steps.emplace_back(OptimizerStep{.param = s.param.view_of_data(),
                                           .master = s.master.view_of_data(),
                                           .grad = s.grad.view_of_data(),
                                           .state = {},
                                           .group = static_cast<int>(s.group),
                                           .steps = static_cast<const std::int64_t*>(s.entry->step_count.raw_data()),
                                           .state_made_at = s.entry->state_made_at});
      std::size_t i = 0;
      for (const std::string& name : state_names(groups_[s.group]))
        if (View& view = step.state[i++]; !name.empty()) view = s.entry->state.at(name).view_of_data();
    }
    update(backend_for(device_), steps, control);
    finish();
  }
  stepped_.clear();
  return !skipped;
}

void Optimizer::collect() {
  stepped_.clear();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].trainable) continue;
    for (Entry& entry : groups_[g].entries) {
      const Tensor& gradient = entry.param.grad();
      if (!gradient.defined()) continue;
      // The pass is over dense memory in row-major order, which parameters and gradients nearly always have.
      const Tensor grad = gradient.contiguous(), param = entry.param.contiguous();
      const Tensor master = entry.has_master() ? entry.master : param;
      check(master.shape() == param.shape() && grad.device() == param.device() && master.device() == param.device(),
            "{}: a parameter has shape {} on {}, its master {} on {}, its gradient is on {}; give the model its "
            "final shapes and device before making the optimizer",
            name_, param.shape(), param.device(), master.shape(), master.device(), grad.device());
      if (stepped_.empty()) device_ = param.device();
      check(param.device() == device_, "{}: parameters are on {} and on {}; expected one device", name_, device_,
            param.device());
      if (!entry.step_count.defined() || entry.step_count.device() != device_)
        entry.step_count = entry.step_count.defined() ? entry.step_count.to(device_) : zeros({}, i64, device_);
      stepped_.push_back({g, &entry, param, master, grad});
    }
  }
}

void Optimizer::write_hyperparameters() {
  std::vector<GroupControl> control;
  for (const ParamGroup& group : groups_)
    control.push_back(
        {.lr = group.lr, .weight_decay = group.weight_decay, .momentum = group.momentum, .beta2 = group.beta2});
  const bool in_place = control_.defined() && control_.device() == device_ && written_.size() == control.size();
  if (in_place && written_ == control) return;
  if (!in_place) {
    control_ = empty({static_cast<std::int64_t>(control.size() * sizeof(GroupControl))}, u8, device_);
    stats_ = empty({static_cast<std::int64_t>(control.size()), 2}, f64, device_);
  }
  backend_for(device_).copy_from_host(control_.raw_data(), control.data(), control.size() * sizeof(GroupControl));
  written_ = std::move(control);
}

void Optimizer::decide(const StepOptions& options) {
  static_assert(sizeof(GradStats) == 2 * sizeof(double));
  Backend& backend = backend_for(device_);
  const auto n = static_cast<std::int64_t>(groups_.size());
  const StepRule rule{.grad_scale = options.grad_scale,
                      .clip_each = options.clip_each.value_or(kNoClip),
                      .clip_all = options.clip.value_or(kNoClip),
                      .needs_finite = options.scaler != nullptr};
  check(rule.clip_each >= 0 && rule.clip_all >= 0, "{}: step was given clip {}; expected 0 or more", name_,
        std::min(rule.clip_each, rule.clip_all));
  auto* const stats = static_cast<GradStats*>(stats_.raw_data());
  if (rule.needs_stats()) {
    std::vector<GroupedGrad> grads;
    grads.reserve(stepped_.size());
    for (const Stepped& s : stepped_) grads.push_back({s.grad.view_of_data(), static_cast<int>(s.group)});
    backend.grad_stats(stats, n, grads);
  }
  Tensor loss = options.must_be_finite;
  if (loss.defined()) loss = cast(loss, f64).to(device_);
  std::vector<std::int64_t*> counts;
  counts.reserve(stepped_.size());
  for (const Stepped& s : stepped_) counts.push_back(static_cast<std::int64_t*>(s.entry->step_count.raw_data()));
  backend.decide_step(static_cast<GroupControl*>(control_.raw_data()), n, stats,
                      options.scaler ? options.scaler->on(device_) : nullptr, rule,
                      loss.defined() ? static_cast<const double*>(loss.raw_data()) : nullptr, counts);
}

void Optimizer::make_state() {
  for (const Stepped& s : stepped_) {
    ParamGroup& group = groups_[s.group];
    for (const std::string& name : state_names(group)) {
      if (name.empty()) continue;
      if (!s.entry->state.contains(name)) {
        // The step that finds zeros is this one, or the first that is not skipped.
        GroupControl control;
        backend_for(device_).copy_to_host(&control, control_.raw_data(), sizeof(control));
        s.entry->state_made_at = s.entry->steps() - (control.skip != 0 ? 0 : 1);
      }
      state(group, *s.entry, name);
    }
  }
}

void Optimizer::finish() {
  for (const Stepped& s : stepped_) {
    if (!s.param.is_same(s.entry->param)) s.entry->param.copy_(s.param);
    // A graph that still needs the old values finds out by the version.
    s.entry->param.impl()->storage->bump_version();
    if (s.entry->has_master()) s.entry->master.impl()->storage->bump_version();
  }
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

// --- statistics ------------------------------------------------------------------------------------------------------

namespace {

// Of gradients that are numbered by group; undefined ones are passed over.
std::vector<GradStats> stats_by_group(const std::vector<Tensors>& groups) {
  const NoGrad guard;
  Tensors dense;
  std::vector<GroupedGrad> grads;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const Tensor& grad : groups[g]) {
      if (!grad.defined()) continue;
      dense.push_back(grad.contiguous());
      check(grad.device() == dense.front().device(), "grad_stats: gradients are on {} and on {}; expected one device",
            dense.front().device(), grad.device());
      grads.push_back({dense.back().view_of_data(), static_cast<int>(g)});
    }
  std::vector<GradStats> result(groups.size());
  if (dense.empty()) return result;
  const Tensor stats = empty({static_cast<std::int64_t>(groups.size()), 2}, f64, dense.front().device());
  backend_for(stats.device()).grad_stats(static_cast<GradStats*>(stats.raw_data()), stats.size(0), grads);
  backend_for(stats.device()).copy_to_host(result.data(), stats.raw_data(), result.size() * sizeof(GradStats));
  return result;
}

}  // namespace

GradStats stats_of(const Tensors& grads) { return stats_by_group({grads}).front(); }

std::vector<GradStats> Optimizer::grad_stats_by_group() const {
  std::vector<Tensors> grads(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].trainable)
      for (const Entry& entry : groups_[g].entries) grads[g].push_back(entry.param.grad());
  return stats_by_group(grads);
}

GradStats Optimizer::grad_stats() const { return total(grad_stats_by_group()); }

}  // namespace halfgrad::optim
