#pragma once
// How learning rate and momentum move during a run. PhaseScheduler is the one place that sets them; the policies below
// it are lists of phases.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "callbacks/callback.h"
#include "optim/anneal.h"

namespace halfgrad {

/// A learning rate per layer group: `3e-3` for all; `{1e-5, 1e-3}`, a geometric series from the first group to the last
/// (a single group gets the last); `{1e-5, 1e-4, 1e-3}` one each.
class LearningRates {
 public:
  LearningRates(double all) : values_{all} {}
  LearningRates(std::initializer_list<double> rates) : values_(rates) {}
  /// Error unless there are one, two or exactly `groups` rates, each finite and not negative.
  std::vector<double> for_groups(std::size_t groups) const;
  /// The rate of each group divided by a number.
  LearningRates operator/(double divisor) const;

 private:
  std::vector<double> values_;
  double divisor_ = 1;
};

/// The way of the learning rate through a phase: from `start` to `end`, by default where it started, along a curve of
/// optim/anneal.h.
struct AnnealedRate {
  LearningRates start;
  std::optional<LearningRates> end = {};
  optim::Anneal curve = optim::anneal_linear;
};

/// The same for the momentum of all groups (beta1 of Adam).
struct AnnealedMomentum {
  double start = 0;
  std::optional<double> end = {};
  optim::Anneal curve = optim::anneal_linear;
};

/// A part of a run, with its length in batches or as a share of the run, which is rounded down to whole batches; one
/// phase may have neither, and lasts as long as the others leave. A rate or a momentum that is left out stays where the
/// phase before left it.
struct TrainingPhase {
  std::optional<std::int64_t> batches = {};
  std::optional<double> share = {};
  std::optional<AnnealedRate> lr = {};
  std::optional<AnnealedMomentum> momentum = {};
};

/// fastai's GeneralScheduler: phases one after the other. After the last one its end values stay; a run that is shorter
/// leaves the rest of them out. What is set before a batch, in all optimizers, is a function of state.iteration alone.
/// When the run has ended, momentum is as it was before.
///
///   learn.add(std::make_shared<PhaseScheduler>(std::vector<TrainingPhase>{
///       {.batches = 100, .lr = {{.start = 1e-5, .end = 1e-3}}},
///       {.lr = {{.start = 1e-3, .end = 1e-6, .curve = optim::anneal_cos}}}}));
class PhaseScheduler : public Callback {
 public:
  /// Error when there is no phase, or when a length or a momentum is out of its range.
  explicit PhaseScheduler(std::vector<TrainingPhase> phases);

  bool in_lr_find() const override { return false; }
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;
  InGraph in_graph() const override { return InGraph::watches; }

 private:
  /// Of each phase, in batches, in a run of so many.
  std::vector<double> lengths(double run) const;

  std::vector<TrainingPhase> phases_;
  std::vector<double> momentum_before_;  // of each group of each optimizer; empty outside of a run
};

struct OneCycleOptions {
  std::pair<double, double> moms = {0.95, 0.85};  ///< momentum (beta1 of Adam) at the ends, and at the peak
  double div_factor = 25;                         ///< the rate starts at max_lr / div_factor ...
  double pct_start = 0.3;                         ///< ... rises for this share of all batches ...
  std::optional<double> final_div = {};           ///< ... and falls to max_lr / final_div; by default div_factor * 1e4
};

/// Smith's one-cycle policy (arXiv 1803.09820) with fastai's defaults and cosine slopes: the rate rises from
/// max_lr / div_factor to max_lr and falls to almost 0, while momentum does the opposite.
class OneCycle : public PhaseScheduler {
 public:
  explicit OneCycle(const LearningRates& max_lr, const OneCycleOptions& options = {});
};

struct FlatCosOptions {
  double pct_start = 0.75;  ///< the rate stays for this share of all batches ...
  double div_final = 1e5;   ///< ... and falls to lr / div_final
};

/// fastai's fit_flat_cos: a flat rate, then half a period of the cosine. Momentum is left alone.
class FlatCos : public PhaseScheduler {
 public:
  explicit FlatCos(const LearningRates& lr, const FlatCosOptions& options = {});
};

}  // namespace halfgrad
