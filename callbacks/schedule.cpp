#include "callbacks/schedule.h"

#include <cmath>

#include "callbacks/learner.h"
#include "optim/anneal.h"

namespace halfgrad {

std::vector<double> LearningRates::for_groups(std::size_t groups) const {
  for (const double lr : values_)
    check(std::isfinite(lr) && lr >= 0, "learning rate {}: expected a finite number that is not negative", lr);
  if (values_.size() == groups) return values_;
  if (values_.size() == 2) {
    std::vector<double> rates(groups, values_[1]);  // one group gets the last rate
    for (std::size_t i = 0; i + 1 < groups; ++i)
      rates[i] = optim::anneal_exp(values_[0], values_[1], static_cast<double>(i) / static_cast<double>(groups - 1));
    return rates;
  }
  if (values_.size() == 1) return std::vector<double>(groups, values_[0]);
  fail("learning rates: {} were given for {} layer groups", values_.size(), groups);
}

OneCycle::OneCycle(std::vector<double> max_lr_per_group, const OneCycleOptions& options)
    : max_lr_(std::move(max_lr_per_group)), options_(options) {
  check(options.div_factor > 0 && options.final_div.value_or(1) > 0,
        "one cycle: div_factor {} and final_div {} must be positive", options.div_factor,
        options.final_div.value_or(1));
  check(options.pct_start >= 0 && options.pct_start <= 1, "one cycle: pct_start {} must lie in [0, 1]",
        options.pct_start);
  for (const double mom : {options.moms.first, options.moms.second})
    check(mom >= 0 && mom < 1, "one cycle: momentum {} must lie in [0, 1)", mom);
}

void OneCycle::on_train_begin(Learner& learn) {
  batches_ = static_cast<double>(learn.state.n_epochs) * static_cast<double>(learn.data().train.size());
  momentum_before_.clear();
  for (const optim::ParamGroup& group : learn.optimizer().groups()) momentum_before_.push_back(group.momentum);
}

void OneCycle::on_batch_begin(Learner& learn) {
  if (!learn.state.train) return;
  const double at = static_cast<double>(learn.state.iteration);
  const double up = std::floor(batches_ * options_.pct_start), down = batches_ - up;
  const double final_div = options_.final_div.value_or(options_.div_factor * 1e4);
  const auto [mom_ends, mom_peak] = options_.moms;
  for (std::size_t i = 0; i < max_lr_.size(); ++i) {
    optim::ParamGroup& group = learn.optimizer().groups()[i];
    if (at < up) {
      group.lr = optim::anneal_cos(max_lr_[i] / options_.div_factor, max_lr_[i], at / up);
      group.momentum = optim::anneal_cos(mom_ends, mom_peak, at / up);
    } else {
      group.lr = optim::anneal_cos(max_lr_[i], max_lr_[i] / final_div, (at - up) / down);
      group.momentum = optim::anneal_cos(mom_peak, mom_ends, (at - up) / down);
    }
  }
}

SavedState OneCycle::save_state() const { return {{{"momentum", from_vector(momentum_before_)}}, {}}; }
void OneCycle::load_state(const SavedState& state) {
  momentum_before_ = state.tensors.at("momentum").to_vector<double>();
}

void OneCycle::on_train_end(Learner& learn, std::exception_ptr) {
  for (std::size_t i = 0; i < momentum_before_.size(); ++i)
    learn.optimizer().groups()[i].momentum = momentum_before_[i];
}

}  // namespace halfgrad
