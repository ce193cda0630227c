#include "callbacks/gan/switchers.h"

#include "callbacks/gan/trainer.h"
#include "callbacks/learner.h"

namespace halfgrad {

void GANSwitcher::on_train_begin(Learner& learn) {
  check(learn.find<GANTrainer>() != nullptr, "{}: the Learner has no GANTrainer; use GANLearner, or add one", name());
}

void GANSwitcher::on_batch_end(Learner& learn) {
  GANTrainer& trainer = *learn.find<GANTrainer>();
  if (learn.state.train && turn_is_over(trainer.gen_mode(), learn.state)) trainer.switch_to(learn, !trainer.gen_mode());
}

FixedGANSwitcher::FixedGANSwitcher(const FixedGANSwitcherOptions& options) : options_(options) {
  check(options.n_crit >= 1 && options.n_gen >= 1, "FixedGANSwitcher: n_crit is {} and n_gen {}; expected at least 1",
        options.n_crit, options.n_gen);
}

void FixedGANSwitcher::on_train_begin(Learner& learn) {
  GANSwitcher::on_train_begin(learn);
  batches_ = 0;
}

bool FixedGANSwitcher::turn_is_over(bool gen_mode, const TrainingState&) {
  if (++batches_ < (gen_mode ? options_.n_gen : options_.n_crit)) return false;
  batches_ = 0;
  return true;
}

SavedState FixedGANSwitcher::save_state() const { return {.numbers = {{"batches", static_cast<double>(batches_)}}}; }

void FixedGANSwitcher::load_state(const SavedState& state) {
  batches_ = static_cast<std::int64_t>(state.number("batches"));
}

bool AdaptiveGANSwitcher::turn_is_over(bool gen_mode, const TrainingState& state) {
  const std::optional<double>& threshold = gen_mode ? options_.gen_thresh : options_.critic_thresh;
  return !threshold || state.last_loss.item() < *threshold;
}

}  // namespace halfgrad
