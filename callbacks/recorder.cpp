#include "callbacks/recorder.h"

#include <fmt/format.h>

#include <numeric>

#include "callbacks/learner.h"
#include "callbacks/progress.h"

namespace halfgrad {

// --- during a run ------------------------------------------------------------------------------------------

void Recorder::on_train_begin(Learner& learn) {
  losses.clear();
  lrs.clear();
  moms.clear();
  epochs.clear();
  metric_names.clear();
  for (const Metric& metric : learn.metrics()) metric_names.push_back(metric.name);
}

void Recorder::on_epoch_begin(Learner&) { epoch_started_ = seconds_now(); }

void Recorder::on_loss_known(Learner&, const KnownLoss& known) { losses.push_back(known.loss); }

void Recorder::on_backward_begin(Learner& learn) {
  const optim::ParamGroup& group = learn.optimizer().groups().back();
  lrs.push_back(group.lr);
  moms.push_back(group.momentum);
}

void Recorder::on_epoch_end(Learner& learn) {
  const TrainingState& s = learn.state;
  epochs.push_back({.seconds = seconds_now() - epoch_started_,
                    .batches = s.iteration,
                    .train_loss = s.smooth_loss,
                    .metrics = s.skip_validate ? std::vector<double>() : s.last_metrics});
}

// --- tables ------------------------------------------------------------------------------------------------

std::vector<std::string> Recorder::columns() const {
  std::vector<std::string> names = {"epoch", "train_loss", "valid_loss"};
  names.insert(names.end(), metric_names.begin(), metric_names.end());
  names.push_back("time");
  return names;
}

std::vector<std::string> Recorder::row(std::size_t epoch) const {
  const Epoch& e = epochs.at(epoch);
  std::vector<std::string> cells = {std::to_string(epoch), fmt::format("{:.6f}", e.train_loss)};
  for (const double value : e.metrics) cells.push_back(fmt::format("{:.6f}", value));
  cells.resize(metric_names.size() + 3, "-");
  cells.push_back(format_seconds(e.seconds));
  return cells;
}

std::vector<double> Recorder::smoothed_losses() const {
  Smoother smoother;
  std::vector<double> smoothed;
  for (const double loss : losses) smoothed.push_back(smoother.add(loss));
  return smoothed;
}

// --- pictures ----------------------------------------------------------------------------------------------

namespace {
constexpr const char* kBatches = "batches processed";

/// y against 1, 2, ...
Curve numbered(const std::string& label, std::vector<double> y) {
  Curve curve{.label = label, .x = std::vector<double>(y.size()), .y = std::move(y)};
  std::iota(curve.x.begin(), curve.x.end(), 1.0);
  return curve;
}

/// Value `i` of the validation of each epoch that had one.
Curve validated(const Recorder& recorder, const std::string& label, std::size_t i) {
  Curve curve{.label = label};
  for (const Recorder::Epoch& epoch : recorder.epochs) {
    if (epoch.metrics.empty()) continue;
    curve.x.push_back(static_cast<double>(epoch.batches));
    curve.y.push_back(epoch.metrics[i]);
  }
  return curve;
}
}  // namespace

Chart Recorder::loss_chart() const {
  return {.title = "Losses",
          .x_label = kBatches,
          .y_label = "loss",
          .curves = {numbered("train", smoothed_losses()), validated(*this, "valid", 0)}};
}

void Recorder::plot_losses(const std::string& path) const {
  check(!losses.empty(), "plot_losses: there has been no training yet");
  save_chart(loss_chart(), path);
}

void Recorder::plot_lr(const std::string& path) const {
  check(!lrs.empty(), "plot_lr: there has been no training yet");
  save_charts(
      {{.title = "Learning rate",
        .x_label = kBatches,
        .y_label = "learning rate",
        .curves = {numbered("learning rate", lrs)}},
       {.title = "Momentum", .x_label = kBatches, .y_label = "momentum", .curves = {numbered("momentum", moms)}}},
      path);
}

void Recorder::plot_metrics(const std::string& path) const {
  check(!metric_names.empty(), "plot_metrics: the run had no metrics; give the Learner some: .metrics = {{accuracy}}");
  std::vector<Chart> charts;
  for (std::size_t i = 0; i < metric_names.size(); ++i)
    charts.push_back({.title = metric_names[i],
                      .x_label = kBatches,
                      .y_label = metric_names[i],
                      .curves = {validated(*this, metric_names[i], i + 1)}});
  check(!charts.front().curves.front().x.empty(), "plot_metrics: no epoch of the run has been validated");
  save_charts(charts, path);
}

// --- checkpoints -------------------------------------------------------------------------------------------

SavedState Recorder::save_state() const {
  std::vector<double> seconds, train_losses, values;
  std::vector<std::int64_t> batches, counts;  // of the values, since an epoch without validation has none
  for (const Epoch& epoch : epochs) {
    seconds.push_back(epoch.seconds);
    batches.push_back(epoch.batches);
    train_losses.push_back(epoch.train_loss);
    values.insert(values.end(), epoch.metrics.begin(), epoch.metrics.end());
    counts.push_back(static_cast<std::int64_t>(epoch.metrics.size()));
  }
  return {.tensors = {{"losses", from_vector(losses)},
                      {"lrs", from_vector(lrs)},
                      {"moms", from_vector(moms)},
                      {"epoch.seconds", from_vector(seconds)},
                      {"epoch.batches", from_vector(batches)},
                      {"epoch.train_loss", from_vector(train_losses)},
                      {"epoch.metrics", from_vector(values)},
                      {"epoch.metric_counts", from_vector(counts)}}};
}

void Recorder::load_state(const SavedState& state) {
  const auto doubles = [&](const char* name) { return state.tensor(name).to_vector<double>(); };
  const auto integers = [&](const char* name) { return state.tensor(name).to_vector<std::int64_t>(); };
  losses = doubles("losses");
  lrs = doubles("lrs");
  moms = doubles("moms");
  const std::vector<double> seconds = doubles("epoch.seconds"), train_losses = doubles("epoch.train_loss"),
                            values = doubles("epoch.metrics");
  const std::vector<std::int64_t> batches = integers("epoch.batches"), counts = integers("epoch.metric_counts");
  const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  check(seconds.size() == counts.size() && train_losses.size() == counts.size() && batches.size() == counts.size() &&
            values.size() == total,
        "Recorder: the saved epochs have {} times, {} losses, {} batch numbers and {} of {} values; expected one each",
        seconds.size(), train_losses.size(), batches.size(), values.size(), total);
  epochs.clear();
  auto value = values.begin();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    epochs.push_back({seconds[i], batches[i], train_losses[i], {value, value + counts[i]}});
    value += counts[i];
  }
}

}  // namespace halfgrad
