#pragma once

#include "callbacks/learner.h"

namespace halfgrad {

/// Ends the run after its first n training batches, without validation: to see whether everything works.
class StopAfterNBatches : public Callback {
 public:
  /// Error when n is below 1.
  explicit StopAfterNBatches(std::int64_t n = 2) : n_(n) {
    check(n >= 1, "StopAfterNBatches: n is {}; expected at least 1", n);
  }

  bool in_lr_find() const override { return false; }
  InGraph in_graph() const override { return InGraph::watches; }
  void on_batch_end(Learner& learn) override {
    TrainingState& s = learn.state;
    if (s.train && s.iteration + 1 >= n_) s.stop_epoch = s.stop_training = s.skip_validate = true;
  }

 private:
  std::int64_t n_;
};

}  // namespace halfgrad
