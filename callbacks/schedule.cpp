#include "callbacks/schedule.h"

#include <algorithm>
#include <cmath>

#include "callbacks/learner.h"

namespace halfgrad {

namespace {
std::vector<double> spread(double first, double last, std::size_t groups) {
  check(groups <= 2 || (first > 0 && last > 0),
        "learning rates: {} and {} cannot be spread geometrically over {} layer groups; both must be positive", first,
        last, groups);
  std::vector<double> rates(groups, last);
  if (groups > 1) rates.front() = first;
  for (std::size_t i = 1; i + 1 < groups; ++i)
    rates[i] = optim::anneal_exp(first, last, static_cast<double>(i) / static_cast<double>(groups - 1));
  return rates;
}
}  // namespace

std::vector<double> LearningRates::for_groups(std::size_t groups) const {
  for (const double lr : values_)
    check(std::isfinite(lr) && lr >= 0, "learning rate {}: expected a finite number that is not negative", lr);
  check(values_.size() == 1 || values_.size() == 2 || values_.size() == groups,
        "learning rates: {} were given for {} layer groups; expected one, two or one each", values_.size(), groups);
  std::vector<double> rates = values_.size() == 1   ? std::vector<double>(groups, values_[0])
                              : values_.size() == 2 ? spread(values_[0], values_[1], groups)
                                                    : values_;
  for (double& rate : rates) rate /= divisor_;
  return rates;
}

LearningRates LearningRates::operator/(double divisor) const {
  LearningRates result = *this;
  result.divisor_ *= divisor;
  return result;
}

// --- PhaseScheduler ----------------------------------------------------------------------------------------

PhaseScheduler::PhaseScheduler(std::vector<TrainingPhase> phases) : phases_(std::move(phases)) {
  check(!phases_.empty(), "PhaseScheduler: there is no phase; expected at least one");
  double shares = 0;
  int without_length = 0;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const TrainingPhase& phase = phases_[i];
    check(!phase.batches || !phase.share, "PhaseScheduler: phase {} has its length as batches and as share; give one",
          i);
    check(phase.batches.value_or(0) >= 0, "PhaseScheduler: phase {} lasts {} batches; expected 0 or more", i,
          phase.batches.value_or(0));
    check(phase.share.value_or(0) >= 0 && phase.share.value_or(0) <= 1,
          "PhaseScheduler: phase {} lasts the share {} of the run; expected 0 to 1", i, phase.share.value_or(0));
    check((!phase.lr || phase.lr->curve) && (!phase.momentum || phase.momentum->curve),
          "PhaseScheduler: a curve of phase {} is an empty function", i);
    if (phase.momentum)
      for (const double momentum : {phase.momentum->start, phase.momentum->end.value_or(0)})
        check(momentum >= 0 && momentum < 1, "PhaseScheduler: momentum {} of phase {} must lie in [0, 1)", momentum, i);
    shares += phase.share.value_or(0);
    without_length += !phase.batches && !phase.share;
  }
  check(shares < 1 + 1e-9, "PhaseScheduler: the shares of the phases add up to {}; expected at most 1", shares);
  check(without_length <= 1, "PhaseScheduler: {} phases have no length; only one can take what the others leave",
        without_length);
}

std::vector<double> PhaseScheduler::lengths(double run) const {
  std::vector<double> lengths;
  double rest = run;
  for (const TrainingPhase& phase : phases_) {
    lengths.push_back(phase.batches ? static_cast<double>(*phase.batches) : std::floor(run * phase.share.value_or(0)));
    rest -= lengths.back();
  }
  for (std::size_t i = 0; i < phases_.size(); ++i)
    if (!phases_[i].batches && !phases_[i].share) lengths[i] = std::max(rest, 0.0);
  return lengths;
}

namespace {
void set(std::vector<optim::ParamGroup>& groups, const TrainingPhase& phase, double fraction) {
  if (const auto& lr = phase.lr) {
    const std::vector<double> start = lr->start.for_groups(groups.size());
    const std::vector<double> end = lr->end.value_or(lr->start).for_groups(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].lr = lr->curve(start[i], end[i], fraction);
  }
  if (const auto& momentum = phase.momentum)
    for (optim::ParamGroup& group : groups)
      group.momentum = momentum->curve(momentum->start, momentum->end.value_or(momentum->start), fraction);
}
}  // namespace

void PhaseScheduler::on_train_begin(Learner& learn) {
  momentum_before_.clear();
  for (const auto& optimizer : learn.optimizers())
    for (const optim::ParamGroup& group : optimizer->groups()) momentum_before_.push_back(group.momentum);
}

void PhaseScheduler::on_batch_begin(Learner& learn) {
  if (!learn.state.train) return;
  const double at = static_cast<double>(learn.state.iteration);
  const std::vector<double> length =
      lengths(static_cast<double>(learn.state.n_epochs) * static_cast<double>(learn.data().train.size()));
  // From the first phase on, so that each passes its end values on to the next.
  double begin = 0;
  for (std::size_t i = 0; i < phases_.size() && begin <= at; begin += length[i++])
    for (const auto& optimizer : learn.optimizers())
      set(optimizer->groups(), phases_[i], at - begin < length[i] ? (at - begin) / length[i] : 1);
}

void PhaseScheduler::on_train_end(Learner& learn, std::exception_ptr) {
  auto momentum = momentum_before_.begin();
  for (const auto& optimizer : learn.optimizers())
    for (optim::ParamGroup& group : optimizer->groups())
      if (momentum != momentum_before_.end()) group.momentum = *momentum++;
  momentum_before_.clear();
}

SavedState PhaseScheduler::save_state() const {
  if (momentum_before_.empty()) return {};
  return {.tensors = {{"momentum_before", from_vector(momentum_before_)}}};
}

void PhaseScheduler::load_state(const SavedState& state) {
  momentum_before_ = state.tensor("momentum_before").to_vector<double>();
}

// --- policies made of phases -------------------------------------------------------------------------------

namespace {
std::vector<TrainingPhase> one_cycle_phases(const LearningRates& max_lr, const OneCycleOptions& options) {
  const double final_div = options.final_div.value_or(options.div_factor * 1e4);
  const auto [mom_ends, mom_peak] = options.moms;
  check(options.div_factor > 0 && final_div > 0, "one cycle: div_factor {} and final_div {} must be positive",
        options.div_factor, final_div);
  check(options.pct_start >= 0 && options.pct_start <= 1, "one cycle: pct_start {} must lie in [0, 1]",
        options.pct_start);
  return {{.share = options.pct_start,
           .lr = {{.start = max_lr / options.div_factor, .end = max_lr, .curve = optim::anneal_cos}},
           .momentum = {{.start = mom_ends, .end = mom_peak, .curve = optim::anneal_cos}}},
          {.lr = {{.start = max_lr, .end = max_lr / final_div, .curve = optim::anneal_cos}},
           .momentum = {{.start = mom_peak, .end = mom_ends, .curve = optim::anneal_cos}}}};
}

std::vector<TrainingPhase> flat_cos_phases(const LearningRates& lr, const FlatCosOptions& options) {
  check(options.div_final > 0, "flat cos: div_final {} must be positive", options.div_final);
  check(options.pct_start >= 0 && options.pct_start <= 1, "flat cos: pct_start {} must lie in [0, 1]",
        options.pct_start);
  return {{.share = options.pct_start, .lr = {{.start = lr}}},
          {.lr = {{.start = lr, .end = lr / options.div_final, .curve = optim::anneal_cos}}}};
}
}  // namespace

OneCycle::OneCycle(const LearningRates& max_lr, const OneCycleOptions& options)
    : PhaseScheduler(one_cycle_phases(max_lr, options)) {}

FlatCos::FlatCos(const LearningRates& lr, const FlatCosOptions& options)
    : PhaseScheduler(flat_cos_phases(lr, options)) {}

}  // namespace halfgrad
