#pragma once
// What the training loop tells, and lets change: the state of a run, and the callbacks that it calls at each
// event. The loop itself is Learner::fit in learner.cpp.

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "callbacks/loss_reader.h"
#include "engine/class_name.h"
#include "engine/saved_state.h"
#include "engine/tensor.h"
#include "optim/optimizer.h"

namespace halfgrad {

class Learner;

/// What callbacks read and write. The flags say what the loop leaves out; they are false again at each batch.
struct TrainingState {
  // where the run is
  int epoch = 0;
  int n_epochs = 0;
  std::int64_t iteration = 0;  ///< training batches since fit began
  std::int64_t num_batch = 0;  ///< training batches since the epoch began
  bool train = false;          ///< false in validation and prediction

  // the batch
  Tensors last_input = {};   ///< what the model is given
  Tensors last_target = {};  ///< what the loss compares with
  Tensor last_output = {};
  Tensor last_loss = {};   ///< never scaled
  double smooth_loss = 0;  ///< average of the training losses that are known, recent ones weighing more
  /// The validation loss, then the metrics, of the last validation; empty before.
  std::vector<double> last_metrics = {};

  // what mixed precision and clipping do to the numbers on their way; nothing in plain training, and again at
  // each batch
  Tensor loss_scale = {};        ///< backward differentiates last_loss times this; undefined: 1
  optim::StepOptions step = {};  ///< for the optimizer

  bool skip_bwd = false;  ///< no backward for this batch
  /// No optimizer step. After the step, on a CPU: none was made, also when a gradient was not finite. A GPU keeps that to
  /// itself.
  bool skip_step = false;
  bool skip_zero = false;  ///< keep the gradients: the next batch adds to them
  bool stop_epoch = false;
  bool stop_training = false;  ///< after this epoch
  bool skip_validate = false;  ///< for all of the run
};

/// Every hook may read and change `learn.state`; an exception from one ends the run, after on_train_end.
class Callback {
 public:
  virtual ~Callback() = default;

  /// The class's name; checkpoints know callbacks by it.
  std::string name() const { return class_name(typeid(*this)); }

  /// Lower runs first, equal ones in the order in which they were added. Trackers and GANTrainer -20, Recorder -10,
  /// MixedPrecision 999.
  virtual int order() const { return 0; }

  virtual void on_train_begin(Learner&) {}
  virtual void on_epoch_begin(Learner&) {}
  /// May replace last_input and last_target. Like on_loss_begin and on_batch_end it also fires in validation
  /// and prediction, with train == false.
  virtual void on_batch_begin(Learner&) {}
  /// The model has run: may replace last_output.
  virtual void on_loss_begin(Learner&) {}
  /// The loss of a training batch has reached the host, which every loss does once, in order. On a CPU that is the loss of
  /// this batch, before on_backward_begin; on a GPU it is that of an earlier one, and the last ones come before validation.
  /// A callback that reads last_loss itself makes the host wait for the GPU.
  virtual void on_loss_known(Learner&, const KnownLoss&) {}
  /// The loss is computed: may replace last_loss.
  virtual void on_backward_begin(Learner&) {}
  virtual void on_backward_end(Learner&) {}
  /// Fires also when the step was skipped.
  virtual void on_step_end(Learner&) {}
  virtual void on_batch_end(Learner&) {}
  virtual void on_epoch_end(Learner&) {}
  /// Always the last event of a run; `error` is what ended it early, or null.
  virtual void on_train_end(Learner&, std::exception_ptr /*error*/) {}

  /// How the callback takes part in a step that is captured as a CUDA graph, see Learner::capture_step.
  enum class InGraph {
    refuses,  ///< it decides something on the host in each step, or nobody has thought about it: the default
    watches,  ///< what it does in a step is on the host alone, such as to set a learning rate: it does so at each batch
    is_part,  ///< from on_batch_begin to on_backward_end it does the same to tensors in each step: captured with it
  };
  virtual InGraph in_graph() const { return InGraph::refuses; }

  /// Learner::lr_find leaves out callbacks that say no: what watches a real run, writes files or stops it.
  virtual bool in_lr_find() const { return true; }

  // --- checkpoints ---
  /// What the callback must know to go on in the middle of a run as if it had never stopped; by default nothing.
  virtual SavedState save_state() const { return {}; }
  /// Takes that back. Called after on_train_begin of a run that is resumed, and only if the checkpoint has a state of a
  /// callback of this class.
  virtual void load_state(const SavedState&) {}
};

}  // namespace halfgrad
