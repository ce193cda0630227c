#include "callbacks/gan/learner.h"

#include <utility>

#include "optim/adam.h"
#include "optim/rmsprop.h"

namespace halfgrad {

namespace {

optim::OptimizerFactory or_adam(const optim::OptimizerFactory& opt) {
  return opt ? opt : optim::adam({.lr = 2e-4, .beta1 = 0.5});
}

LearnerOptions learner_options(const GANLearnerOptions& options, const std::shared_ptr<GANTrainer>& trainer) {
  LearnerOptions result{.opt = or_adam(options.gen_opt), .metrics = options.metrics, .silent = options.silent};
  for (const Metric& metric : trainer->metrics()) result.metrics.push_back(metric);
  // These two first: what else looks at the end of a batch sees whose turn is next.
  result.callbacks = {trainer, options.switcher};
  if (!options.switcher)
    result.callbacks.back() = std::make_shared<FixedGANSwitcher>(FixedGANSwitcherOptions{.n_crit = 5, .n_gen = 1});
  result.callbacks.insert(result.callbacks.end(), options.callbacks.begin(), options.callbacks.end());
  return result;
}

}  // namespace

GANLearner::GANLearner(data::Data data, nn::Module& generator, nn::Module& critic, GANLosses losses,
                       const GANLearnerOptions& options)
    : GANParts(generator, critic,
               {.switch_eval = options.switch_eval,
                .clip = options.clip,
                .beta = options.beta,
                .gen_first = options.gen_first}),
      Learner(std::move(data), gan, GANLoss(gan, std::move(losses)), learner_options(options, trainer)) {
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers(2);
  optimizers[GANTrainer::gen_optimizer] = or_adam(options.gen_opt)({{.params = generator.parameters()}});
  optimizers[GANTrainer::critic_optimizer] = or_adam(options.critic_opt)({{.params = critic.parameters()}});
  set_optimizers(std::move(optimizers));
}

GANLearner GANLearner::wgan(data::Data data, nn::Module& generator, nn::Module& critic, GANLearnerOptions options) {
  for (optim::OptimizerFactory* opt : {&options.gen_opt, &options.critic_opt})
    if (!*opt) *opt = optim::rmsprop({.lr = 5e-5});
  if (!options.clip) options.clip = 0.01;
  return GANLearner(std::move(data), generator, critic, wasserstein_losses(), options);
}

Tensor GANLearner::generate(const Tensor& noise) {
  struct GenMode {
    explicit GenMode(GANModule& gan) : gan(gan) { gan.gen_mode = true; }
    ~GenMode() { gan.gen_mode = before; }
    GANModule& gan;
    bool before = gan.gen_mode;
  } guard(gan);
  return predict(noise);
}

}  // namespace halfgrad
