#pragma once
// Learner: data, model, loss and optimizer in one training loop that callbacks extend.

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/callback.h"
#include "callbacks/captured_step.h"
#include "callbacks/interpret.h"
#include "callbacks/lr_finder.h"
#include "callbacks/metrics.h"
#include "callbacks/mixed_precision.h"
#include "callbacks/recorder.h"
#include "callbacks/schedule.h"
#include "data/loader.h"
#include "nn/module.h"
#include "optim/adam.h"

namespace halfgrad {

/// A scalar from the model's output and the target; as a mean over the samples, as validation takes it to be.
using LossFn = std::function<Tensor(const Tensor& output, const Tensor& target)>;
using CallbackPtr = std::shared_ptr<Callback>;

struct LearnerOptions {
  optim::OptimizerFactory opt = optim::adamw();
  std::vector<Metric> metrics = {};
  std::optional<LearningRates> lr = {};  ///< of a fit that is given none; by default the optimizer's
  std::optional<double> wd = {};         ///< weight decay; by default the optimizer's
  std::vector<CallbackPtr> callbacks = {};
  bool silent = false;   ///< print nothing at all
  bool train_bn = true;  ///< freeze() leaves batchnorm layers trainable, as their statistics move on anyway
};

/// Where a run is, between two steps: what is left to do begins with batch `batch` of epoch `epoch`.
struct RunPosition {
  int epoch = 0;
  std::int64_t batch = 0;
  std::int64_t iteration = 0;     ///< training batches done since fit began
  std::int64_t loader_epoch = 0;  ///< the training loader's number of this epoch
};

struct LoadOptions {
  bool with_opt = true;  ///< false: the model's weights alone
};

struct Checkpoint;  // checkpoint.h

class Learner {
 public:
  /// Keeps a reference to the model, which must live as long as the Learner.
  Learner(data::Data data, nn::Module& model, LossFn loss, LearnerOptions options = {});
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // --- training: each call goes on from where the last one stopped, optimizer state included ---
  /// With the learning rate and weight decay of LearnerOptions, or with these; what neither says stays as each optimizer
  /// was made.
  void fit(int epochs);
  void fit(int epochs, LearningRates lr, std::optional<double> wd = {});
  void fit_one_cycle(int epochs, LearningRates max_lr, const OneCycleOptions& options = {},
                     std::optional<double> wd = {});
  void fit_flat_cos(int epochs, LearningRates lr, const FlatCosOptions& options = {}, std::optional<double> wd = {});

  /// The range test of lr_finder.h. Afterwards everything is as it was, bit for bit: weights, optimizer, loss scale,
  /// random numbers, callbacks.
  LrFindResult lr_find(const LrFindOptions& options = {});

  // --- looking at it: in eval mode, without a graph ---
  /// Validation loss, then the metrics.
  std::vector<double> validate();
  std::vector<double> validate(data::DataLoader& loader);
  /// The model's output for one batch; f32 in mixed precision too (unless loss_fp32 is off).
  Tensor predict(const Tensor& input) { return predict(Tensors{input}); }
  Tensor predict(const Tensors& inputs);
  /// Outputs and targets of the whole validation set, or of other data.
  std::pair<Tensor, Tensor> get_preds() { return get_preds(data_.valid); }
  std::pair<Tensor, Tensor> get_preds(data::DataLoader& loader);
  /// The first samples of the validation set as a text table: target, prediction, loss. `classes` names the classes of a
  /// classifier.
  std::string show_results(std::int64_t rows = 5, const std::vector<std::string>& classes = {});
  /// Confusion matrix, most confused classes and largest losses of a classifier on the validation set.
  ClassificationInterpretation interpret(const std::vector<std::string>& classes = {});

  // --- precision ---
  /// Parameters and buffers become f16, except batchnorm's, and training keeps f32 masters:
  /// mixed_precision.h. A second call changes the options and restarts the scale.
  Learner& to_fp16(const MixedPrecisionOptions& options = {});
  /// Everything f32 again, the weights with the masters' full precision; optimizer state is kept.
  Learner& to_fp32();
  /// Null in plain training.
  MixedPrecision* mixed_precision() const { return mixed_precision_.get(); }

  // --- layer groups: parts of the model with a learning rate of their own, the first nearest to the input ---
  /// Each module named (by its path, in the order of the model) begins a new group: split({"body.4", "head"}) makes
  /// three. Masters and optimizer state stay with their parameters. Error for a path that is unknown or out of order and
  /// for a group without parameters.
  Learner& split(const std::vector<std::string>& first_modules);
  /// Trains group n and those after it, counted from the end if n is negative; see LearnerOptions::train_bn.
  Learner& freeze_to(int n);
  /// Trains the last group only.
  Learner& freeze() { return freeze_to(-1); }
  Learner& unfreeze() { return freeze_to(0); }

  // --- optimizers ---
  /// The one whose turn it is; nearly always there is only one.
  optim::Optimizer& optimizer() const { return *optimizers_[active_]; }
  const std::vector<std::unique_ptr<optim::Optimizer>>& optimizers() const { return optimizers_; }
  std::size_t active_optimizer() const { return active_; }
  /// From the next batch on. Each optimizer has its own masters, state and loss scale.
  void use_optimizer(std::size_t i);
  /// Several optimizers, each for a part of the model's parameters (a GAN has two), instead of the one there was. Error
  /// when a parameter is in two of them.
  void set_optimizers(std::vector<std::unique_ptr<optim::Optimizer>> optimizers);

  /// From now on training steps run as a CUDA graph: forward, backward, loss scaling and optimizer of a batch are asked for
  /// with a single call, which helps where kernels are short. The first batches of a fit run as usual, to warm up; so does
  /// a batch of another shape. The numbers are the same, bit for bit. Within a captured step no code of the model or the
  /// callbacks runs on the host: state.last_output stays that of the capture, and layers must not depend on anything but
  /// tensors. Error when the model is not on a GPU, or when a callback cannot take part (Callback::in_graph).
  Learner& capture_step(bool on = true);

  // --- checkpoints ---
  /// Writes everything to one safetensors file: weights, masters, optimizer state, loss scales, where the run is, random
  /// numbers and the state of the callbacks. At any moment the file is whole: the old one or the new one. Inside of a run
  /// it may be called between steps: from on_batch_end, on_epoch_begin, on_epoch_end.
  void save(const std::string& path);
  /// Takes weights, optimizer state, loss scales and random numbers from a checkpoint, whichever precision it was saved
  /// in; from a file of another program, the weights. Error, before anything has changed, that lists what does not fit.
  void load(const std::string& path, const LoadOptions& options = {});
  /// load(), and the next fit goes on where the saved run was, with the same bits as if it had not been interrupted. Call
  /// that fit as the first time. Error when the checkpoint was not saved in or after a run.
  void resume(const std::string& path);

  // --- callbacks ---
  void add(CallbackPtr callback);
  void remove(const CallbackPtr& callback);
  /// The first callback of this type, or null.
  template <class T>
  T* find() const {
    for (const CallbackPtr& callback : callbacks_)
      if (auto* found = dynamic_cast<T*>(callback.get())) return found;
    return nullptr;
  }

  nn::Module& model() const { return model_; }
  data::Data& data() { return data_; }
  const std::vector<Metric>& metrics() const { return options_.metrics; }
  const Recorder& recorder() const { return *recorder_; }
  /// Writes the last run as an HTML page (report.h). Throws Error when the file cannot be written.
  void report(const std::string& path);

  TrainingState state;

 private:
  void fire(void (Callback::*event)(Learner&));
  /// For these callbacks only.
  void fire(void (Callback::*event)(Learner&), Callback::InGraph kind);
  /// Tells everyone of the losses that have come, or waits for them all.
  void take_losses(bool wait);
  void train_epoch();
  void train_batch(const data::Batch& batch);
  /// From on_batch_begin to the optimizer's step.
  void step(const data::Batch& batch);
  /// The same by replaying a graph, which is captured if the batch is the first after the warm-up.
  void captured_step(const data::Batch& batch);
  bool is_captured(const data::Batch& batch);
  data::Batch on_device(const data::Batch& batch) const;
  void begin_batch(const data::Batch& batch);
  /// on_batch_begin, the model, on_loss_begin.
  void forward(const data::Batch& batch);
  Tensor loss() const;
  /// Of each sample by itself.
  std::vector<double> losses_of(const Tensor& outputs, const Tensor& targets) const;
  void run(int epochs, const std::optional<LearningRates>& lr, std::optional<double> wd);
  void fit_with(CallbackPtr schedule, int epochs, const LearningRates& lr, std::optional<double> wd);
  void set_rates(const std::optional<LearningRates>& lr, std::optional<double> wd);
  /// Keeps the rates that the optimizers were made with.
  void note_rates();
  void continue_run();
  void zero_grad();

  // checkpoint.cpp
  /// The present state, copied.
  Checkpoint make_checkpoint();
  void restore(const Checkpoint& checkpoint, const LoadOptions& options = {});
  /// What restore() leaves out: gradients, the state of callbacks, and where the run was.
  void restore_run(const Checkpoint& checkpoint);
  void restore_gradients(const Checkpoint& checkpoint);
  void restore_callbacks(const Checkpoint& checkpoint);
  /// on_train_end for everyone, whatever happened; then throws `error` if there is one.
  void end_run(std::exception_ptr error);

  data::Data data_;
  nn::Module& model_;
  LossFn loss_;
  LearnerOptions options_;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;
  std::vector<std::pair<double, double>> made_with_;  // learning rate and weight decay of each
  std::size_t active_ = 0;
  std::vector<CallbackPtr> callbacks_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<MixedPrecision> mixed_precision_;
  LossReader losses_;
  Smoother smoother_;
  std::optional<RunPosition> position_;        // none before the first fit
  bool capture_ = false;                       // capture_step() was asked for
  int steps_to_warm_up_ = 0;                   // before one is captured
  std::unique_ptr<CapturedStep> captured_;     // of this epoch
  bool in_step_ = false;                       // a training batch has begun, its step is not done
  std::shared_ptr<const Checkpoint> resumed_;  // what the next fit goes on from
};

}  // namespace halfgrad
