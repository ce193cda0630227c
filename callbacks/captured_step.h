#pragma once
// CapturedStep: a whole training step of a Learner as one CUDA graph.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "engine/backend.h"
#include "engine/tensor.h"

namespace halfgrad {

/// A small network's step is a hundred kernels of a few microseconds each, and the host needs longer to ask for one than
/// the GPU to run it. A graph asks for all of them at once. It is the same work on the same memory every time: so a batch
/// is copied into the memory of the one that was captured, and what changes from step to step is read from the GPU's
/// memory (see engine/step_control.h). A batch of another shape, such as the last of an epoch, takes the ordinary way.
class CapturedStep {
 public:
  /// `work` does the step on the batch that it is given, and returns the loss. It is recorded, not done. `batch` is on the
  /// GPU. Error when the step does something that a graph cannot hold.
  template <class Work>
  CapturedStep(const data::Batch& batch, Device device, Work work)
      : inputs(copies_of(batch.inputs)), targets(copies_of(batch.targets)) {
    record(device, [&] { loss = work(data::Batch{.inputs = inputs, .targets = targets}); });
  }

  /// The batch has the shapes and dtypes of the one that was captured.
  bool takes(const data::Batch& batch) const;
  /// Does the step on a batch of this kind, and takes from the default generator what the step takes of random numbers.
  void replay(const data::Batch& batch);

  Tensors inputs, targets;  ///< what the graph reads
  Tensor loss;              ///< what it computes, each time in the same place

 private:
  static Tensors copies_of(const Tensors& tensors);
  void record(Device device, const std::function<void()>& work);

  std::uint64_t random_counters_ = 0;  // that a step takes
  std::unique_ptr<CapturedWork> graph_;
};

}  // namespace halfgrad
