#pragma once
// Callbacks that say when it is the other network's turn in a GAN. Each works beside a GANTrainer.

#include <cstdint>
#include <optional>

#include "callbacks/callback.h"

namespace halfgrad {

/// Base of those that decide it after each training batch. Error at the beginning of a run without a GANTrainer.
class GANSwitcher : public Callback {
 public:
  /// As the trainer's, and so before a callback that saves checkpoints: whose turn is next is part of them.
  int order() const override { return -20; }
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;

 protected:
  /// Has the network that `state` is of the last batch of had its turn?
  virtual bool turn_is_over(bool gen_mode, const TrainingState& state) = 0;
};

struct FixedGANSwitcherOptions {
  std::int64_t n_crit = 1, n_gen = 1;
};

/// n_crit batches for the critic, then n_gen for the generator. Batches whose step was skipped count too.
class FixedGANSwitcher : public GANSwitcher {
 public:
  /// Error unless both are at least 1.
  explicit FixedGANSwitcher(const FixedGANSwitcherOptions& options = {});
  void on_train_begin(Learner& learn) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 protected:
  bool turn_is_over(bool gen_mode, const TrainingState& state) override;

 private:
  FixedGANSwitcherOptions options_;
  std::int64_t batches_ = 0;  // of this turn
};

struct AdaptiveGANSwitcherOptions {
  std::optional<double> gen_thresh = {}, critic_thresh = {};
};

/// A network goes on until the loss of a batch is below its threshold; without a threshold its turn is one batch.
class AdaptiveGANSwitcher : public GANSwitcher {
 public:
  explicit AdaptiveGANSwitcher(const AdaptiveGANSwitcherOptions& options = {}) : options_(options) {}

 protected:
  bool turn_is_over(bool gen_mode, const TrainingState& state) override;

 private:
  AdaptiveGANSwitcherOptions options_;
};

}  // namespace halfgrad
