#pragma once
// How learning rate and momentum move during a run.

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "callbacks/callback.h"

namespace halfgrad {

/// A learning rate per layer group: `3e-3` for all; `{1e-5, 1e-3}`, a geometric series from the first group to the last
/// (a single group gets the last); `{1e-5, 1e-4, 1e-3}` one each.
class LearningRates {
 public:
  LearningRates(double all) : values_{all} {}
  LearningRates(std::initializer_list<double> rates) : values_(rates) {}
  /// Error unless there are one, two or exactly `groups` rates, each finite and not negative.
  std::vector<double> for_groups(std::size_t groups) const;

 private:
  std::vector<double> values_;
};

struct OneCycleOptions {
  std::pair<double, double> moms = {0.95, 0.85};  ///< momentum (beta1 of Adam) at the ends, and at the peak
  double div_factor = 25;                         ///< the rate starts at max_lr / div_factor ...
  double pct_start = 0.3;                         ///< ... rises for this share of all batches ...
  std::optional<double> final_div = {};           ///< ... and falls to max_lr / final_div; by default div_factor * 1e4
};

/// Smith's one-cycle policy (arXiv 1803.09820) with fastai's defaults and cosine slopes: the rate rises from
/// max_lr / div_factor to max_lr and falls to almost 0, while momentum does the opposite. What it sets is a
/// function of state.iteration alone. Momentum is as before when the run has ended.
class OneCycle : public Callback {
 public:
  OneCycle(std::vector<double> max_lr_per_group, const OneCycleOptions& options = {});
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 private:
  std::vector<double> max_lr_;
  OneCycleOptions options_;
  double batches_ = 0;
  std::vector<double> momentum_before_;
};

}  // namespace halfgrad
