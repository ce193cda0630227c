#include "callbacks/mixed_precision.h"

#include <algorithm>
#include <cmath>

#include "callbacks/finite_loss.h"
#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/random.h"
#include "optim/clip.h"

namespace halfgrad {

// --- one step by hand --------------------------------------------------------------------------------------

bool plain_mixed_precision_step(const Tensors& params, const Tensors& masters, optim::Optimizer& optimizer,
                                double loss_scale, std::optional<double> clip) {
  NoGrad guard;
  // Widen the gradients to f32, which is exact.
  for (std::size_t i = 0; i < params.size(); ++i) {
    Tensor master = masters[i];
    master.set_grad(params[i].grad().defined() ? cast(params[i].grad(), f32) : Tensor());
  }
  // A gradient that overflowed must not reach a weight.
  const optim::GradStats stats = optimizer.grad_stats();
  if (stats.non_finite > 0) return false;
  // Undo the loss scale, and shorten a gradient that is longer than `clip`.
  const double norm = optim::grad_norm(stats, 1 / loss_scale);
  const double factor = (clip ? optim::clip_factor(norm, *clip) : 1.0) / loss_scale;
  for (Tensor master : masters)
    if (master.grad().defined()) master.set_grad(master.grad() * factor);
  // Update the masters, and round them to nearest even into the weights.
  optimizer.step();
  for (std::size_t i = 0; i < params.size(); ++i) {
    Tensor param = params[i];
    param.copy_(masters[i]);
  }
  return true;
}

// --- the same in a Learner, with fused passes --------------------------------------------------------------

namespace {
constexpr int kMaxSkipsAtFloor = 50;

LossScaler make_scaler(const MixedPrecisionOptions& options) {
  const double scale = options.loss_scale.value_or(options.dynamic ? 65536.0 : 512.0);
  check(std::isfinite(scale) && scale > 0, "to_fp16: loss_scale {} must be a positive number", scale);
  check(options.min_scale > 0 && options.min_scale <= options.max_scale && std::isfinite(options.max_scale),
        "to_fp16: min_scale {} and max_scale {} must be positive, the first not above the second", options.min_scale,
        options.max_scale);
  check(!options.dynamic || (scale >= options.min_scale && scale <= options.max_scale),
        "to_fp16: a dynamic loss_scale stays in [min_scale, max_scale] = [{}, {}]; {} is outside", options.min_scale,
        options.max_scale, scale);
  check(options.max_noskip >= 1, "to_fp16: max_noskip {} must be at least 1", options.max_noskip);
  check(!options.clip || (*options.clip > 0 && std::isfinite(*options.clip)),
        "to_fp16: clip {} must be a positive norm; leave it out to clip nothing", options.clip.value_or(0));
  return {.scale = scale,
          .dynamic = options.dynamic,
          .min_scale = options.min_scale,
          .max_scale = options.max_scale,
          .max_noskip = options.max_noskip};
}

template <class F>
void for_each_entry(Learner& learn, F f) {
  for (const auto& optimizer : learn.optimizers())
    for (optim::ParamGroup& group : optimizer->groups())
      for (optim::Entry& entry : group.entries) f(entry);
}
}  // namespace

MixedPrecision::MixedPrecision(const MixedPrecisionOptions& options)
    : options_(options), scalers_{optim::GradScaler(make_scaler(options))} {}

void MixedPrecision::convert(Learner& learn) {
  NoGrad guard;
  scalers_.resize(learn.optimizers().size(), scalers_.front());
  Tensors exact;  // the parameters' present memory, which to(f16) leaves alone
  for_each_entry(learn, [&](optim::Entry& entry) { exact.push_back(entry.param.detach()); });
  learn.model().to(f16);
  if (!options_.masters) return;
  for (const auto& optimizer : learn.optimizers()) optimizer->use_masters(options_.flat_master);
  auto value = exact.begin();
  for_each_entry(learn, [&](optim::Entry& entry) {
    if (entry.has_master()) entry.master.copy_(*value);
    ++value;
  });
}

void MixedPrecision::on_train_begin(Learner& learn) {
  coming_.clear();
  adopt_changed_weights(learn);
}

void MixedPrecision::adopt_changed_weights(Learner& learn) const {
  if (!options_.masters) return;
  NoGrad guard;
  for (const auto& optimizer : learn.optimizers()) optimizer->use_masters(options_.flat_master);
  for_each_entry(learn, [](optim::Entry& entry) {
    if (entry.has_master() && any(cast(entry.master, entry.param.dtype()) != entry.param).item<bool>())
      entry.master.copy_(entry.param);
  });
}

void MixedPrecision::on_batch_begin(Learner& learn) {
  for (Tensor& input : learn.state.last_input)
    if (is_floating(input.dtype())) input = cast(input, f16);
}

void MixedPrecision::on_loss_begin(Learner& learn) {
  Tensor& output = learn.state.last_output;
  if (options_.loss_fp32 && output.dtype() == f16) output = cast(output, f32);
}

void MixedPrecision::on_backward_begin(Learner& learn) {
  learn.state.loss_scale = scalers_[learn.active_optimizer()].scale(learn.state.last_loss);
}

// Are all gradients finite? Then the step divides them by the scale, clips them, and updates the masters; the scale moves
// either way. See Optimizer::step().
void MixedPrecision::on_backward_end(Learner& learn) {
  optim::StepOptions& step = learn.state.step;
  steps_ = !learn.state.skip_step;  // not while gradients are being accumulated
  step.scaler = &scalers_[learn.active_optimizer()];
  if (options_.clip && options_.clip_per_group) step.clip_each = options_.clip;
  if (options_.clip && !options_.clip_per_group)
    step.clip = std::min(step.clip.value_or(*options_.clip), *options_.clip);
}

void MixedPrecision::on_step_end(Learner& learn) {
  if (!steps_) return;
  const Tensor& scaler = scalers_[learn.active_optimizer()].memory();
  coming_.push_back(backend_for(scaler.device()).download(scaler.raw_data(), sizeof(LossScaler)));
  look_at_scalers(learn, false);
}

void MixedPrecision::on_epoch_end(Learner& learn) { look_at_scalers(learn, true); }

void MixedPrecision::look_at_scalers(Learner& learn, bool wait) {
  while (!coming_.empty() && (wait || coming_.front()->is_there())) {
    const std::unique_ptr<Download> come = std::move(coming_.front());
    coming_.pop_front();
    const auto& scaler = *static_cast<const LossScaler*>(come->wait());
    if (scaler.at_floor >= kMaxSkipsAtFloor)
      fail(
          "mixed precision: {} steps in a row were skipped because of inf or NaN, and the loss scale, {}, {}; the "
          "first tensor that is not finite is {}",
          kMaxSkipsAtFloor, scaler.scale, scaler.dynamic ? "is at its minimum" : "is static", first_non_finite(learn));
  }
}

// --- what went wrong, for the Error after too many skipped steps -------------------------------------------

namespace {

// The parameters of a module itself, without those of its children.
struct OwnParameters : nn::Visitor {
  explicit OwnParameters(nn::Module& module) { module.visit(*this); }
  void parameter(const std::string& name, Tensor& parameter) override { found.emplace_back(name, parameter); }
  nn::NamedTensors found;
};

std::string layer(const std::string& path, const nn::Module& module) {
  return path.empty() ? fmt::format("the model ({})", module.name())
                      : fmt::format("layer '{}' ({})", path, module.name());
}

// "; its largest finite magnitude is 65280"
std::string largest_finite(const Tensor& x) {
  if (x.numel() == 0) return "";
  const Tensor finite = isfinite(x);
  if (!any(finite).item<bool>()) return ", which holds no finite number";
  const Tensor magnitude = where(finite, abs(x.detach()), zeros_like(x));
  return fmt::format(", whose largest finite magnitude is {:.6g}", max(magnitude).item());
}

// Runs the model with hooks on every module, and puts everything back that this changes.
std::string first_non_finite_in_forward(nn::Module& model, const Tensors& inputs) {
  NoGrad guard;
  const GeneratorState random = default_generator().state();
  nn::NamedTensors buffers = model.named_buffers();
  for (auto& [name, buffer] : buffers) buffer = buffer.clone();

  std::string first;
  std::vector<std::pair<nn::Module*, int>> hooks;
  for (const auto& [path, module] : model.named_modules()) {
    const std::string where = layer(path, *module);
    hooks.emplace_back(module, module->register_forward_pre_hook([&first, where](nn::Module& m, Tensors&) {
      for (const auto& [name, parameter] : OwnParameters(m).found)
        if (first.empty() && !all_finite(parameter))
          first = fmt::format("'{}' of {}{}", name, where, largest_finite(parameter));
    }));
    hooks.emplace_back(
        module, module->register_forward_hook([&first, where](nn::Module&, const Tensors&, const Tensor& output) {
          if (first.empty() && !all_finite(output)) first = "the output of " + where + largest_finite(output);
          return Tensor();
        }));
  }
  model(inputs);

  for (const auto& [module, id] : hooks) module->remove_hook(id);
  nn::NamedTensors present = model.named_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) present[i].second.copy_(buffers[i].second);
  default_generator().set_state(random);
  return first;
}

}  // namespace

std::string first_non_finite(Learner& learn) {
  NoGrad guard;
  const TrainingState& s = learn.state;
  for (std::size_t i = 0; i < s.last_input.size(); ++i)
    if (!all_finite(s.last_input[i])) return fmt::format("input {} of the batch{}", i, largest_finite(s.last_input[i]));
  const std::string in_forward = first_non_finite_in_forward(learn.model(), s.last_input);
  if (!in_forward.empty()) return in_forward;
  if (!all_finite(s.last_loss)) return "the loss";
  for (const auto& [path, module] : learn.model().named_modules())
    for (const auto& [name, parameter] : OwnParameters(*module).found)
      if (parameter.grad().defined() && !all_finite(parameter.grad()))
        return fmt::format("the gradient of '{}' of {}{}", name, layer(path, *module),
                           largest_finite(parameter.grad()));
  return "not to be found in a second look at the batch (a layer that draws random numbers may have made it)";
}

}  // namespace halfgrad
