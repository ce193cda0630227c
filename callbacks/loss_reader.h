#pragma once
// LossReader: the losses of the batches, on their way from the device to the host.

#include <deque>
#include <memory>
#include <optional>

#include "engine/backend.h"
#include "engine/tensor.h"

namespace halfgrad {

/// A training loss that has reached the host, and the batch that it is of.
struct KnownLoss {
  double loss = 0;
  int epoch = 0;
  std::int64_t num_batch = 0;  ///< since the epoch began
};

/// In the order of the batches. On a CPU a loss is known at once. A GPU is still computing when the host has long been
/// preparing the next batches, and asking for the loss of this one would make it wait: so the loss is read when it comes.
class LossReader {
 public:
  /// Starts to read `loss`, one number. Returns at once.
  void add(const Tensor& loss, int epoch, std::int64_t num_batch);
  /// The next loss, if it has come, or if `wait`; nothing when there is no next one.
  std::optional<KnownLoss> next(bool wait);
  void clear() { coming_.clear(); }

 private:
  struct Coming {
    std::unique_ptr<Download> number;
    DType dtype;
    KnownLoss of;
  };
  std::deque<Coming> coming_;
};

}  // namespace halfgrad
