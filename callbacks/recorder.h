#pragma once
// Recorder: remembers what a run did, for plots and tables. Every Learner has one.

#include <cstdint>
#include <string>
#include <vector>

#include "callbacks/callback.h"
#include "callbacks/plot.h"

namespace halfgrad {

class Recorder : public Callback {
 public:
  /// One entry per training batch: the loss as the loss function gave it, once it is known. Rate and momentum are those of
  /// the last layer group, as used in the step.
  std::vector<double> losses, lrs, moms;
  /// One entry per epoch: seconds (in an epoch that was resumed, since then), training batches from the run's beginning
  /// to the epoch's end, smoothed training loss, and validation loss followed by the metrics (empty when validation was
  /// skipped).
  struct Epoch {
    double seconds;
    std::int64_t batches;
    double train_loss;
    std::vector<double> metrics;
  };
  std::vector<Epoch> epochs;
  /// Of the metrics, in the order of Epoch::metrics.
  std::vector<std::string> metric_names;

  /// The names of an epoch table's columns: epoch, train_loss, valid_loss, the metrics, time.
  std::vector<std::string> columns() const;
  /// That table's line for one epoch, as text for people; what was not validated is "-".
  std::vector<std::string> row(std::size_t epoch) const;
  /// `losses`, each averaged with those before it as in TrainingState::smooth_loss.
  std::vector<double> smoothed_losses() const;
  /// Smoothed training losses and validation losses against the batches processed.
  Chart loss_chart() const;

  // --- pictures of the last run, as .png or .svg, with their numbers beside them as .csv: save_charts() in plot.h,
  // which also tells what happens without gnuplot. Error when there is nothing to show. ---
  /// loss_chart()
  void plot_losses(const std::string& path) const;
  /// Learning rate, and below it momentum, of each batch.
  void plot_lr(const std::string& path) const;
  /// Each metric, one below the other, against the batches processed.
  void plot_metrics(const std::string& path) const;

  int order() const override { return -10; }
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_loss_known(Learner& learn, const KnownLoss& known) override;
  void on_backward_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  InGraph in_graph() const override { return InGraph::watches; }
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 private:
  double epoch_started_ = 0;
};

}  // namespace halfgrad
