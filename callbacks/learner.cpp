#include "callbacks/learner.h"

#include <algorithm>
#include <set>

#include "callbacks/checkpoint.h"
#include "callbacks/finite_loss.h"
#include "callbacks/progress.h"
#include "callbacks/report.h"
#include "engine/io/atomic_file.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/join.h"

namespace halfgrad {

// --- the training loop -------------------------------------------------------------------------------------

namespace {
constexpr int kWarmUpSteps = 2;  // before a step is captured: they make state, load kernels and choose algorithms
}

void Learner::fit(int epochs) { run(epochs, options_.lr, options_.wd); }

void Learner::fit(int epochs, LearningRates lr, std::optional<double> wd) { run(epochs, lr, wd ? wd : options_.wd); }

void Learner::run(int epochs, const std::optional<LearningRates>& lr, std::optional<double> wd) {
  check(epochs >= 0, "fit: {} epochs; the number must not be negative", epochs);
  check(epochs == 0 || data_.train.size() > 0, "fit: the training data is empty; expected at least one item");
  set_rates(lr, wd);
  state = TrainingState{.n_epochs = epochs};
  smoother_ = Smoother();
  position_ = resumed_ ? position_of(*resumed_) : RunPosition{.loader_epoch = data_.train.epoch()};
  state.epoch = position_->epoch;
  state.iteration = position_->iteration;
  std::exception_ptr error;
  try {
    fire(&Callback::on_train_begin);
    if (resumed_ && position_->batch == 0) continue_run();
    for (; state.epoch < epochs && !state.stop_training; ++state.epoch) {
      train_epoch();
      if (!state.skip_validate) validate();
      position_ = {state.epoch + 1, 0, state.iteration, data_.train.epoch()};
      fire(&Callback::on_epoch_end);
    }
  } catch (...) {
    error = std::current_exception();
  }
  end_run(error);
}

void Learner::train_epoch() {
  model_.train();
  state.train = true;
  state.num_batch = position_->batch;
  fire(&Callback::on_epoch_begin);
  if (resumed_) continue_run();  // in the middle of this epoch
  captured_.reset();             // between epochs layers may have been frozen, weights moved
  steps_to_warm_up_ = kWarmUpSteps;
  data_.train.set_epoch(position_->loader_epoch, position_->batch);
  for (const data::Batch& batch : data_.train) {
    train_batch(batch);
    ++state.iteration;
    ++state.num_batch;
    if (state.stop_epoch) break;
  }
  take_losses(true);
  position_->batch = data_.train.size();
}

void Learner::train_batch(const data::Batch& batch) {
  in_step_ = true;
  const data::Batch uploaded = on_device(batch);
  if (is_captured(uploaded)) {
    captured_step(uploaded);
  } else {
    step(uploaded);
  }
  fire(&Callback::on_step_end);
  if (!state.skip_zero) zero_grad();
  in_step_ = false;
  ++position_->batch;
  ++position_->iteration;
  fire(&Callback::on_batch_end);
}

void Learner::step(const data::Batch& batch) {
  forward(batch);
  state.last_loss = loss();
  losses_.add(state.last_loss, state.epoch, state.num_batch);
  take_losses(false);
  fire(&Callback::on_backward_begin);
  if (!state.skip_bwd) state.last_loss.backward(state.loss_scale);
  fire(&Callback::on_backward_end);
  if (!state.skip_step) state.skip_step = !optimizer().step(state.step);
}

void Learner::take_losses(bool wait) {
  while (const std::optional<KnownLoss> known = losses_.next(wait)) {
    state.smooth_loss = smoother_.add(known->loss);
    for (const CallbackPtr& callback : std::vector(callbacks_)) callback->on_loss_known(*this, *known);
  }
}

data::Batch Learner::on_device(const data::Batch& batch) const {
  const Device device = optimizer().groups().front().entries.front().param.device();
  data::Batch uploaded = batch;
  for (Tensors* tensors : {&uploaded.inputs, &uploaded.targets})
    for (Tensor& x : *tensors) x = x.to(device);
  return uploaded;
}

void Learner::begin_batch(const data::Batch& batch) {
  state.last_input = batch.inputs;
  state.last_target = batch.targets;
  state.loss_scale = {};
  state.step = {};
  state.skip_bwd = state.skip_step = state.skip_zero = state.stop_epoch = false;
}

void Learner::forward(const data::Batch& batch) {
  begin_batch(batch);
  fire(&Callback::on_batch_begin);
  state.last_output = model_(state.last_input);
  fire(&Callback::on_loss_begin);
}

Tensor Learner::loss() const {
  check(state.last_target.size() == 1, "Learner: the batch has {} targets, but a loss compares the output with one",
        state.last_target.size());
  return loss_(state.last_output, state.last_target.front());
}

namespace {
/// While one lives, the model is in eval mode and nothing is recorded; afterwards a run goes on as it was.
struct Evaluating {
  explicit Evaluating(Learner& learn) : learn(learn) {
    learn.model().eval();
    learn.state.train = false;
  }
  ~Evaluating() {
    learn.model().train(was_training);
    before.last_metrics = std::move(learn.state.last_metrics);
    before.stop_training = learn.state.stop_training;
    learn.state = std::move(before);
  }
  Learner& learn;
  bool was_training = learn.model().is_training();
  TrainingState before = learn.state;
  NoGrad no_grad;
};
}  // namespace

std::vector<double> Learner::validate() { return validate(data_.valid); }

std::vector<double> Learner::validate(data::DataLoader& loader) {
  Evaluating guard(*this);
  MetricAverages averages(options_.metrics);
  for (const data::Batch& batch : loader) {
    forward(on_device(batch));
    state.last_loss = loss();
    averages.add(state.last_loss.item(), state.last_output, state.last_target.front());
    fire(&Callback::on_batch_end);
    if (state.stop_epoch) break;
  }
  return state.last_metrics = averages.values();
}

// --- what a run begins and ends with -----------------------------------------------------------------------

void Learner::set_rates(const std::optional<LearningRates>& lr, std::optional<double> wd) {
  check(wd.value_or(0) >= 0, "fit: weight decay {} must not be negative", wd.value_or(0));
  for (std::size_t o = 0; o < optimizers_.size(); ++o) {
    std::vector<optim::ParamGroup>& groups = optimizers_[o]->groups();
    const std::vector<double> rates = lr.value_or(made_with_[o].first).for_groups(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].lr = rates[i];
      groups[i].weight_decay = wd.value_or(made_with_[o].second);
    }
  }
}

void Learner::note_rates() {
  made_with_.clear();
  for (const auto& optimizer : optimizers_)
    made_with_.emplace_back(optimizer->groups().front().lr, optimizer->groups().front().weight_decay);
}

void Learner::continue_run() {
  const std::shared_ptr<const Checkpoint> checkpoint = std::exchange(resumed_, nullptr);
  restore(*checkpoint);
  restore_run(*checkpoint);
}

void Learner::zero_grad() {
  for (const auto& optimizer : optimizers_) optimizer->zero_grad();
}

void Learner::end_run(std::exception_ptr error) {
  if (std::exchange(in_step_, false)) position_.reset();  // there is no going on from half a step
  resumed_.reset();
  losses_.clear();
  captured_.reset();
  zero_grad();
  for (const CallbackPtr& callback : std::vector(callbacks_)) {
    try {
      callback->on_train_end(*this, error);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// --- a step as a CUDA graph --------------------------------------------------------------------------------

Learner& Learner::capture_step(bool on) {
  const Device device = optimizer().groups().front().entries.front().param.device();
  check(!on || !device.is_cpu(),
        "capture_step: the model is on {}, and only a GPU has CUDA graphs; move it there, or leave this out", device);
  captured_.reset();
  capture_ = on;
  return *this;
}

bool Learner::is_captured(const data::Batch& batch) {
  if (!capture_) return false;
  if (captured_) return captured_->takes(batch);
  for (const CallbackPtr& callback : callbacks_)
    check(callback->in_graph() != Callback::InGraph::refuses,
          "capture_step: the callback {} cannot take part in a captured step; leave one of the two out, or override "
          "in_graph() if it only watches",
          callback->name());
  return steps_to_warm_up_-- <= 0;
}

void Learner::captured_step(const data::Batch& batch) {
  using enum Callback::InGraph;
  begin_batch(batch);
  fire(&Callback::on_batch_begin, watches);  // schedules set the rates
  optimizer().write_hyperparameters();
  if (!captured_) {
    captured_ = std::make_unique<CapturedStep>(batch, batch.inputs.front().device(), [this](const data::Batch& memory) {
      state.last_input = memory.inputs;
      state.last_target = memory.targets;
      fire(&Callback::on_batch_begin, is_part);
      state.last_output = model_(state.last_input);
      fire(&Callback::on_loss_begin, is_part);
      const Tensor loss = state.last_loss = this->loss();
      fire(&Callback::on_backward_begin, is_part);
      state.last_loss.backward(state.loss_scale);
      fire(&Callback::on_backward_end, is_part);
      optimizer().step(state.step);
      return loss.detach();
    });
  }
  captured_->replay(batch);
  state.last_loss = captured_->loss;
  losses_.add(state.last_loss, state.epoch, state.num_batch);
  take_losses(false);
  for (const auto event : {&Callback::on_loss_begin, &Callback::on_backward_begin, &Callback::on_backward_end})
    fire(event, watches);
}

void Learner::fire(void (Callback::*event)(Learner&), Callback::InGraph kind) {
  for (const CallbackPtr& callback : std::vector(callbacks_))
    if (callback->in_graph() == kind) (callback.get()->*event)(*this);
}

void Learner::fire(void (Callback::*event)(Learner&)) {
  // A copy of the list, since a callback may add or remove callbacks.
  for (const CallbackPtr& callback : std::vector(callbacks_)) (callback.get()->*event)(*this);
}

// --- the rest ----------------------------------------------------------------------------------------------

Learner::Learner(data::Data data, nn::Module& model, LossFn loss, LearnerOptions options)
    : data_(std::move(data)),
      model_(model),
      loss_(std::move(loss)),
      options_(std::move(options)),
      recorder_(std::make_shared<Recorder>()) {
  check(static_cast<bool>(loss_), "Learner: the loss is an empty function");
  optimizers_.push_back(options_.opt({{.params = model.parameters()}}));
  note_rates();
  add(recorder_);
  add(std::make_shared<FiniteLoss>());
  if (!options_.silent) add(std::make_shared<Progress>());
  for (const CallbackPtr& callback : options_.callbacks) add(callback);
}

void Learner::add(CallbackPtr callback) {
  check(callback != nullptr, "Learner::add: the callback is null");
  const auto later = [](int order, const CallbackPtr& other) { return order < other->order(); };
  callbacks_.insert(std::upper_bound(callbacks_.begin(), callbacks_.end(), callback->order(), later), callback);
}

void Learner::remove(const CallbackPtr& callback) { std::erase(callbacks_, callback); }

void Learner::fit_one_cycle(int epochs, LearningRates max_lr, const OneCycleOptions& options,
                            std::optional<double> wd) {
  fit_with(std::make_shared<OneCycle>(max_lr, options), epochs, max_lr, wd);
}

void Learner::fit_flat_cos(int epochs, LearningRates lr, const FlatCosOptions& options, std::optional<double> wd) {
  fit_with(std::make_shared<FlatCos>(lr, options), epochs, lr, wd);
}

void Learner::fit_with(CallbackPtr schedule, int epochs, const LearningRates& lr, std::optional<double> wd) {
  struct WhileRunning {
    WhileRunning(Learner& learn, CallbackPtr callback) : learn(learn), callback(callback) { learn.add(callback); }
    ~WhileRunning() { learn.remove(callback); }
    Learner& learn;
    CallbackPtr callback;
  } guard(*this, schedule);
  fit(epochs, lr, wd);
}

Tensor Learner::predict(const Tensors& inputs) {
  Evaluating guard(*this);
  forward(on_device({.inputs = inputs, .targets = {}}));
  return state.last_output;
}

std::pair<Tensor, Tensor> Learner::get_preds(data::DataLoader& loader) {
  Evaluating guard(*this);
  Tensors outputs, targets;
  for (const data::Batch& batch : loader) {
    forward(on_device(batch));
    outputs.push_back(state.last_output);
    if (!state.last_target.empty()) targets.push_back(state.last_target.front());
  }
  check(!outputs.empty(), "get_preds: there is no data");
  return {cat(outputs), targets.empty() ? Tensor() : cat(targets)};
}

void Learner::use_optimizer(std::size_t i) {
  check(i < optimizers_.size(), "use_optimizer: {} of {} optimizers, counted from 0", i, optimizers_.size());
  active_ = i;
}

void Learner::set_optimizers(std::vector<std::unique_ptr<optim::Optimizer>> optimizers) {
  check(!optimizers.empty(), "set_optimizers: there is none");
  check(mixed_precision_ == nullptr, "set_optimizers: the Learner is in mixed precision; call it before to_fp16");
  std::set<const TensorImpl*> seen;
  for (const auto& optimizer : optimizers) {
    check(optimizer != nullptr, "set_optimizers: one of them is null");
    for (const optim::ParamGroup& group : optimizer->groups())
      for (const optim::Entry& entry : group.entries)
        check(seen.insert(entry.param.impl()).second, "set_optimizers: a parameter of shape {} is in two optimizers",
              entry.param.shape());
  }
  optimizers_ = std::move(optimizers);
  note_rates();
  active_ = 0;
}

void Learner::report(const std::string& path) { write_file_atomically(path, html_report(*this)); }

Learner& Learner::to_fp16(const MixedPrecisionOptions& options) {
  const auto precision = std::make_shared<MixedPrecision>(options);  // throws before anything has changed
  to_fp32();
  precision->convert(*this);
  add(mixed_precision_ = precision);
  return *this;
}

Learner& Learner::to_fp32() {
  if (!mixed_precision_) return *this;
  for (const auto& optimizer : optimizers_) optimizer->drop_masters();
  model_.to(f32);
  remove(mixed_precision_);
  mixed_precision_.reset();
  return *this;
}

}  // namespace halfgrad
