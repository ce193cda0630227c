#pragma once
// Recorder: remembers what a run did, for plots and tables. Every Learner has one.

#include <vector>

#include "callbacks/callback.h"

namespace halfgrad {

class Recorder : public Callback {
 public:
  /// One entry per training batch: the loss as the loss function gave it. Rate and momentum are those of the
  /// last layer group, as used in the step.
  std::vector<double> losses, lrs, moms;
  /// One entry per epoch: seconds, smoothed training loss, and validation loss followed by the metrics (empty
  /// when validation was skipped).
  struct Epoch {
    double seconds, train_loss;
    std::vector<double> metrics;
  };
  std::vector<Epoch> epochs;

  int order() const override { return -10; }
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;

 private:
  double epoch_started_ = 0;
};

}  // namespace halfgrad
