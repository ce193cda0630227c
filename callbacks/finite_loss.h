#pragma once
// FiniteLoss: plain training stops at a loss that is inf or NaN, before it reaches a weight. Every Learner
// has one.

#include "callbacks/callback.h"

namespace halfgrad {

/// True also for integers and bools.
bool all_finite(const Tensor& x);

/// Leaves out backward and step of such a batch. Unless another callback has set stop_training by the end of
/// the batch, the run ends with an Error that names the batch, and the input if that is where it came from.
/// On a GPU the step is left out there, and the Error comes some batches later, when the loss has reached the host. In mixed
/// precision it does nothing: there the loss scaler skips such a step.
class FiniteLoss : public Callback {
 public:
  int order() const override { return 998; }
  void on_train_begin(Learner&) override { failed_.reset(); }
  void on_loss_known(Learner& learn, const KnownLoss& known) override;
  void on_backward_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  InGraph in_graph() const override { return InGraph::is_part; }

 private:
  std::optional<KnownLoss> failed_;
};

}  // namespace halfgrad
