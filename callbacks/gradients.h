#pragma once
// Callbacks that change gradients on their way to the optimizer.

#include "callbacks/callback.h"

namespace halfgrad {

/// Bounds the L2 norm of all true (unscaled, f32) gradients together, with and without mixed precision. There it is the
/// same as the option `clip` of to_fp16, and the smaller bound counts.
class GradientClipping : public Callback {
 public:
  /// Error unless clip > 0.
  explicit GradientClipping(double clip);
  /// After the callbacks that set gradients.
  int order() const override { return 997; }
  void on_backward_begin(Learner& learn) override;
  InGraph in_graph() const override { return InGraph::is_part; }

 private:
  double clip_;
};

/// Adds up the gradients of n_step batches before each optimizer step, so that 4 batches of 16 train like one of 64 (but
/// for batchnorm, whose statistics are of a batch). For a loss that is a mean over the samples, as a LossFn should be:
/// each batch weighs by its share of the samples. The last step of an epoch may have fewer batches; with drop_last they
/// are dropped instead. The overflow check, unscaling and clipping of mixed precision happen once per step.
class AccumulateScheduler : public Callback {
 public:
  /// Error unless n_step > 0.
  explicit AccumulateScheduler(std::int64_t n_step = 1, bool drop_last = false);
  void on_backward_begin(Learner& learn) override;

 private:
  std::int64_t n_step_;
  bool drop_last_;
};

}  // namespace halfgrad
