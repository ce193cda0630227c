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
  std::optional<LearningRates> lr = {};  ///< of a fit that is given none; by default that of `opt`
  std::optional<double> wd = {};         ///< weight decay; by default that of `opt`
  std::vector<CallbackPtr> callbacks = {};
  bool silent = false;  ///< print nothing at all
};

class Learner {
 public:
  /// Keeps a reference to the model, which must live as long as the Learner.
  Learner(data::Data data, nn::Module& model, LossFn loss, LearnerOptions options = {});
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // --- training: each call goes on from where the last one stopped, optimizer state included ---
  void fit(int epochs, std::optional<LearningRates> lr = {}, std::optional<double> wd = {});
  void fit_one_cycle(int epochs, LearningRates max_lr, const OneCycleOptions& options = {},
                     std::optional<double> wd = {});

  // --- looking at it: in eval mode, without a graph ---
  /// Validation loss, then the metrics.
  std::vector<double> validate();
  std::vector<double> validate(data::DataLoader& loader);
  /// The model's output for one batch; f32 in mixed precision too (unless loss_fp32 is off).
  Tensor predict(const Tensor& input);
  /// Outputs and targets of the whole validation set.
  std::pair<Tensor, Tensor> get_preds();

  // --- precision ---
  /// Parameters and buffers become f16, except batchnorm's, and training keeps f32 masters:
  /// mixed_precision.h. A second call changes the options and restarts the scale.
  Learner& to_fp16(const MixedPrecisionOptions& options = {});
  /// Everything f32 again, the weights with the masters' full precision; optimizer state is kept.
  Learner& to_fp32();
  /// Null in plain training.
  MixedPrecision* mixed_precision() const { return mixed_precision_.get(); }

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
  optim::Optimizer& optimizer() const { return *optimizer_; }
  data::Data& data() { return data_; }
  const std::vector<Metric>& metrics() const { return options_.metrics; }
  const Recorder& recorder() const { return *recorder_; }
  /// Writes the last run as an HTML page (report.h). Throws Error when the file cannot be written.
  void report(const std::string& path);

  TrainingState state;

 private:
  void fire(void (Callback::*event)(Learner&));
  void train_epoch();
  void train_batch(const data::Batch& batch);
  /// on_batch_begin, the model, on_loss_begin.
  void forward(const data::Batch& batch);
  Tensor loss() const;
  void set_rates(const LearningRates& lr, double wd);
  /// on_train_end for everyone, whatever happened; then throws `error` if there is one.
  void end_run(std::exception_ptr error);

  data::Data data_;
  nn::Module& model_;
  LossFn loss_;
  LearnerOptions options_;
  double default_lr_, default_wd_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<CallbackPtr> callbacks_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<MixedPrecision> mixed_precision_;
  Smoother smoother_;
};

}  // namespace halfgrad
