#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/callback.h"
#include "callbacks/plot.h"
#include "nn/module.h"

namespace halfgrad {

struct ActivationStatsOptions {
  /// Paths of the modules to watch, such as "features.0"; by default all modules with parameters of their own.
  std::vector<std::string> modules = {};
  /// Further, only those for which this is true, if it is given.
  std::function<bool(const std::string& path, const nn::Module& module)> filter = {};
  std::int64_t every = 1;                       ///< training batches from one look to the next
  double near_zero = 0.05;                      ///< what is at most this far from 0 is near it; NaN is not
  std::int64_t bins = 0;                        ///< of a histogram of each layer and batch; 0: none
  std::pair<double, double> range = {-10, 10};  ///< of the histogram; what lies outside is in no bin
};

/// What the numbers of one layer's output do while it trains.
struct LayerActivations {
  std::string path;   ///< "" is the model itself
  std::string layer;  ///< "Linear(784, 128)"
  /// One entry per batch that was looked at: mean and standard deviation (with n - 1) of all numbers, and the share of
  /// those near zero. In f64, from the f16 numbers in mixed precision. NaN where the layer was not called.
  std::vector<double> mean = {}, std = {}, near_zero = {};
  std::vector<std::vector<std::int64_t>> histogram = {};  ///< [bins] for each of these batches
};

enum class ActivationStatistic { mean, std, near_zero };

/// fastai's ActivationStats: watches the outputs of layers in training, through hooks that are gone when the run has
/// ended, in whichever way. A layer that is called several times in a batch shows its last output. It copies outputs to
/// the host, which takes time: see `every`.
class ActivationStats : public Callback {
 public:
  /// Error when an option is out of its range.
  explicit ActivationStats(ActivationStatsOptions options = {});
  ~ActivationStats() override { unhook(); }
  ActivationStats(const ActivationStats&) = delete;
  ActivationStats& operator=(const ActivationStats&) = delete;

  bool in_lr_find() const override { return false; }
  /// Error for a path that the model does not have, and when no module is left to watch.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;

  // --- of the last run, or of this one so far ---
  const std::vector<LayerActivations>& layers() const { return layers_; }
  /// Error when this path was not watched.
  const LayerActivations& layer(const std::string& path) const;
  /// state.iteration of each batch that was looked at.
  const std::vector<std::int64_t>& iterations() const { return iterations_; }

  /// The last of these batches as a table for people, a line per layer.
  std::string table() const;
  /// A curve per layer, for save_chart().
  Chart chart(ActivationStatistic statistic) const;

 private:
  void look_at(LayerActivations& layer, const Tensor& output) const;
  void unhook();

  ActivationStatsOptions options_;
  std::vector<LayerActivations> layers_;
  std::vector<std::int64_t> iterations_;
  std::vector<std::pair<nn::Module*, int>> hooks_;
  bool looking_ = false;  // at the forward pass that runs
};

}  // namespace halfgrad
