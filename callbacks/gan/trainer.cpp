#include "callbacks/gan/trainer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"

namespace halfgrad {

GANTrainer::GANTrainer(GANModule& gan, const GANTrainerOptions& options)
    : gan_(gan), options_(options), gen_smoother_(options.beta), critic_smoother_(options.beta) {
  check(!options.clip || (*options.clip > 0 && std::isfinite(*options.clip)),
        "GANTrainer: clip is {}; expected a positive bound of the critic's weights, or none", options.clip.value_or(0));
  check(options.beta >= 0 && options.beta < 1, "GANTrainer: beta is {}; expected 0 <= beta < 1", options.beta);
}

// --- whose turn it is ------------------------------------------------------------------------------------------------

void GANTrainer::switch_to(Learner& learn, bool gen_mode) {
  gan_.gen_mode = gen_mode;
  learn.use_optimizer(gen_mode ? gen_optimizer : critic_optimizer);
}

namespace {
Tensors trainable_parameters(const nn::Module& network) {
  Tensors parameters = network.parameters();
  std::erase_if(parameters, [](const Tensor& parameter) { return !parameter.requires_grad(); });
  return parameters;
}

void require_grad(const Tensors& parameters, bool on) {
  for (Tensor parameter : parameters) parameter.requires_grad_(on);
}
}  // namespace

void GANTrainer::on_train_begin(Learner& learn) {
  check(&learn.model() == &gan_, "GANTrainer: the Learner's model is another one than the trainer's GANModule");
  check(learn.optimizers().size() == 2,
        "GANTrainer: the Learner has {} optimizers; give it the generator's and the critic's, in this order, with "
        "set_optimizers",
        learn.optimizers().size());
  gen_trainable_ = trainable_parameters(gan_.generator());
  critic_trainable_ = trainable_parameters(gan_.critic());
  gen_losses.clear();
  critic_losses.clear();
  turns_.clear();
  gen_smoother_ = critic_smoother_ = Smoother(options_.beta);
  last_gen_ = {};
  switch_to(learn, options_.gen_first);
}

void GANTrainer::on_batch_begin(Learner& learn) {
  TrainingState& s = learn.state;
  if (s.train) {
    turns_.push_back(gen_mode());
    require_grad(gen_trainable_, gen_mode());
    require_grad(critic_trainable_, !gen_mode());
    if (options_.switch_eval) {  // at each batch, since a validation in between puts all into train mode
      gan_.generator().train(gen_mode());
      gan_.critic().train(!gen_mode());
    }
  }
  if (gen_mode()) return;
  check(
      !s.last_target.empty(),
      "GANTrainer: the batch has no target, but the critic needs real images; for a prediction of the generator in the "
      "middle of a run use GANLearner::generate");
  std::swap(s.last_input, s.last_target);
}

void GANTrainer::on_train_end(Learner& learn, std::exception_ptr) {
  require_grad(std::exchange(gen_trainable_, {}), true);
  require_grad(std::exchange(critic_trainable_, {}), true);
  if (options_.switch_eval) gan_.train();
  switch_to(learn, true);
}

// --- losses and samples ----------------------------------------------------------------------------------------------

namespace {
double last_of(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : values.back();
}
}  // namespace

double GANTrainer::gen_loss() const { return last_of(gen_losses); }
double GANTrainer::critic_loss() const { return last_of(critic_losses); }

void GANTrainer::on_loss_known(Learner&, const KnownLoss& known) {
  const bool of_gen = turns_.front();
  turns_.pop_front();
  if (of_gen) {
    gen_losses.push_back(gen_smoother_.add(known.loss));
  } else {
    critic_losses.push_back(critic_smoother_.add(known.loss));
  }
}

void GANTrainer::on_backward_begin(Learner& learn) {
  if (gen_mode()) last_gen_ = learn.state.last_output.detach();
}

std::vector<Metric> GANTrainer::metrics() const {
  return {{"gen_loss", [this](const Tensor&, const Tensor&) { return gen_loss(); }},
          {"critic_loss", [this](const Tensor&, const Tensor&) { return critic_loss(); }}};
}

// Without validation data nobody has asked the metrics; these two can answer all the same.
void GANTrainer::on_epoch_end(Learner& learn) {
  std::vector<double>& values = learn.state.last_metrics;
  if (!values.empty() || learn.state.skip_validate) return;
  values.push_back(last_of({}));  // the validation loss
  for (const Metric& metric : learn.metrics())
    values.push_back(metric.name == "gen_loss"      ? gen_loss()
                     : metric.name == "critic_loss" ? critic_loss()
                                                    : last_of({}));
}

// --- the clamped weights of a Wasserstein GAN ------------------------------------------------------------------------

void GANTrainer::on_epoch_begin(Learner& learn) {
  if (options_.clip) clamp_critic(learn);  // of weights that were made or loaded outside of the bounds
}

void GANTrainer::on_step_end(Learner& learn) {
  if (options_.clip && !gen_mode()) clamp_critic(learn);
}

// The masters: a clamped f16 weight alone would be overwritten by its master, out of bounds, at the next step.
void GANTrainer::clamp_critic(Learner& learn) const {
  const NoGrad guard;
  optim::Optimizer& optimizer = *learn.optimizers()[critic_optimizer];
  for (optim::ParamGroup& group : optimizer.groups())
    for (optim::Entry& entry : group.entries) entry.master.clamp_(-*options_.clip, *options_.clip);
  optimizer.sync_params_from_masters();
}

// --- checkpoints -----------------------------------------------------------------------------------------------------

SavedState GANTrainer::save_state() const {
  const auto [gen_sum, gen_weight] = gen_smoother_.state();
  const auto [critic_sum, critic_weight] = critic_smoother_.state();
  return {.tensors = {{"gen_losses", from_vector(gen_losses)}, {"critic_losses", from_vector(critic_losses)}},
          .numbers = {{"gen_mode", gen_mode()},
                      {"gen_sum", gen_sum},
                      {"gen_weight", gen_weight},
                      {"critic_sum", critic_sum},
                      {"critic_weight", critic_weight}}};
}

// The Learner itself remembers which optimizer is active.
void GANTrainer::load_state(const SavedState& state) {
  gan_.gen_mode = state.number("gen_mode") != 0;
  gen_losses = state.tensor("gen_losses").to_vector<double>();
  critic_losses = state.tensor("critic_losses").to_vector<double>();
  gen_smoother_.set_state({state.number("gen_sum"), state.number("gen_weight")});
  critic_smoother_.set_state({state.number("critic_sum"), state.number("critic_weight")});
}

}  // namespace halfgrad
