#include "callbacks/trackers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "callbacks/learner.h"

namespace halfgrad {

// --- TrackerCallback ---------------------------------------------------------------------------------------

namespace {
bool is_lower_better(const std::string& name) {
  for (const char* part : {"loss", "error", "mse", "mae"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}
}  // namespace

TrackerCallback::TrackerCallback(std::string monitor, TrackMode mode, double min_delta)
    : monitor_(std::move(monitor)),
      lower_is_better_(mode == TrackMode::min || (mode == TrackMode::automatic && is_lower_better(monitor_))),
      min_delta_(min_delta) {
  check(min_delta >= 0 && std::isfinite(min_delta),
        "tracker of '{}': min_delta {} must be a finite number that is not negative", monitor_, min_delta);
}

void TrackerCallback::on_train_begin(Learner& learn) {
  best_ = lower_is_better_ ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  if (monitor_ == "train_loss") return;
  std::string known = "train_loss, valid_loss";
  bool found = monitor_ == "valid_loss";
  for (const Metric& metric : learn.metrics()) {
    known += ", " + metric.name;
    found = found || monitor_ == metric.name;
  }
  check(found, "{}: there is no '{}' to monitor; known are {}", name(), monitor_, known);
  check(learn.data().valid.size() > 0,
        "{}: '{}' comes from validation, but there is no validation data; monitor 'train_loss'", name(), monitor_);
}

std::optional<double> TrackerCallback::monitored(const Learner& learn) const {
  const TrainingState& s = learn.state;
  if (monitor_ == "train_loss") return s.smooth_loss;
  if (s.skip_validate || s.last_metrics.empty()) {
    check(s.stop_training, "{}: '{}' comes from validation, but epoch {} had none; monitor 'train_loss'", name(),
          monitor_, s.epoch);
    return std::nullopt;
  }
  if (monitor_ == "valid_loss") return s.last_metrics.front();
  const std::vector<Metric>& metrics = learn.metrics();
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const Metric& metric) { return metric.name == monitor_; });
  return s.last_metrics[1 + static_cast<std::size_t>(found - metrics.begin())];
}

bool TrackerCallback::improves(double value) {
  const bool better = lower_is_better_ ? value < best_ - min_delta_ : value > best_ + min_delta_;
  if (better) best_ = value;
  return better;
}

SavedState TrackerCallback::save_state() const { return {.numbers = {{"best", best_}}}; }

void TrackerCallback::load_state(const SavedState& state) { best_ = state.number("best"); }

// --- PatientTracker ----------------------------------------------------------------------------------------

PatientTracker::PatientTracker(std::string monitor, TrackMode mode, double min_delta, std::int64_t patience)
    : TrackerCallback(monitor, mode, min_delta), patience_(patience) {
  check(patience >= 0, "tracker of '{}': patience {} must not be negative", monitor, patience);
}

void PatientTracker::on_train_begin(Learner& learn) {
  TrackerCallback::on_train_begin(learn);
  waited_ = 0;
}

void PatientTracker::on_epoch_end(Learner& learn) {
  const std::optional<double> value = monitored(learn);
  if (!value) return;
  waited_ = improves(*value) ? 0 : waited_ + 1;
  if (waited_ <= patience_) return;
  waited_ = 0;
  out_of_patience(learn);
}

SavedState PatientTracker::save_state() const {
  SavedState state = TrackerCallback::save_state();
  state.numbers["waited"] = static_cast<double>(waited_);
  return state;
}

void PatientTracker::load_state(const SavedState& state) {
  TrackerCallback::load_state(state);
  waited_ = static_cast<std::int64_t>(state.number("waited"));
}

// --- what is done then -------------------------------------------------------------------------------------

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : PatientTracker(options.monitor, options.mode, options.min_delta, options.patience) {}

void EarlyStopping::out_of_patience(Learner& learn) { learn.state.stop_training = true; }

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : PatientTracker(options.monitor, options.mode, options.min_delta, options.patience), factor_(options.factor) {
  check(factor_ > 0 && factor_ < 1, "ReduceLROnPlateau: factor {} must lie between 0 and 1", factor_);
}

void ReduceLROnPlateau::on_train_begin(Learner& learn) {
  PatientTracker::on_train_begin(learn);
  const PhaseScheduler* scheduler = learn.find<PhaseScheduler>();
  check(scheduler == nullptr,
        "ReduceLROnPlateau: {} sets the learning rate before each batch, so that reducing it would have no effect; "
        "leave out one of the two",
        scheduler ? scheduler->name() : "");
}

void ReduceLROnPlateau::out_of_patience(Learner& learn) {
  for (const auto& optimizer : learn.optimizers())
    for (optim::ParamGroup& group : optimizer->groups()) group.lr *= factor_;
}

// --- TerminateOnNaN ----------------------------------------------------------------------------------------

TerminateOnNaN::TerminateOnNaN(const TerminateOnNaNOptions& options) : options_(options) {
  check(options_.patience >= 1, "TerminateOnNaN: patience {} must be at least 1", options_.patience);
}

void TerminateOnNaN::on_train_begin(Learner&) {
  in_a_row_ = 0;
  terminated_ = false;
}

void TerminateOnNaN::on_loss_known(Learner& learn, const KnownLoss& known) {
  TrainingState& s = learn.state;
  in_a_row_ = std::isfinite(known.loss) ? 0 : in_a_row_ + 1;
  if (in_a_row_ < (learn.mixed_precision() ? options_.patience : 1)) return;
  terminated_ = true;
  s.stop_epoch = s.stop_training = s.skip_validate = true;
}

SavedState TerminateOnNaN::save_state() const { return {.numbers = {{"in_a_row", static_cast<double>(in_a_row_)}}}; }

void TerminateOnNaN::load_state(const SavedState& state) {
  in_a_row_ = static_cast<std::int64_t>(state.number("in_a_row"));
}

}  // namespace halfgrad
