#pragma once

#include "callbacks/callback.h"

namespace halfgrad {

/// Batchnorm layers whose parameters are frozen (requires_grad is false for all of them) go on in evaluation mode while
/// the rest of the model trains: they use their running statistics, and leave them as they are. For fine-tuning, where
/// the first layers keep what they know.
class BnFreeze : public Callback {
 public:
  /// At every batch, since parameters may be unfrozen, and a validation in between puts all modules back into training.
  void on_batch_begin(Learner& learn) override;
  InGraph in_graph() const override { return InGraph::watches; }
};

}  // namespace halfgrad
