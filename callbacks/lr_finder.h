#pragma once
// The learning rate range test (Smith, "Cyclical learning rates for training neural networks", 2015, arXiv 1506.01186):
// a short training at a rate that grows until the loss explodes. Learner::lr_find runs it and puts everything back.

#include <optional>
#include <string>
#include <vector>

#include "callbacks/callback.h"

namespace halfgrad {

struct LrFindOptions {
  double start_lr = 1e-7;
  double end_lr = 10;
  int num_it = 100;               ///< batches from the first rate to the last
  bool stop_div = true;           ///< stop where the smoothed loss passes 4 times its lowest
  std::optional<double> wd = {};  ///< weight decay; by default the Learner's
};

struct LrFindResult {
  std::vector<double> lrs;
  std::vector<double> losses;  ///< smoothed, one per rate
  /// Where the loss falls most steeply, of the points that plot() shows; nothing when it falls nowhere.
  std::optional<double> suggestion;

  /// The curve over a logarithmic axis as PNG or SVG, and its points as CSV beside it: save_chart of plot.h.
  void plot(const std::string& path) const;
};

/// Raises the rate of all groups by equal ratios and ends the run.
class LRFinder : public Callback {
 public:
  /// Error unless 0 < start_lr < end_lr and num_it > 1.
  explicit LRFinder(const LrFindOptions& options = {});
  /// After callbacks that change the loss, before FiniteLoss, which lets a run end that this one has stopped.
  int order() const override { return 990; }
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_known(Learner& learn, const KnownLoss& known) override;

  LrFindResult result() const;
  InGraph in_graph() const override { return InGraph::watches; }

 private:
  LrFindOptions options_;
  double best_ = 0;
  std::vector<double> tried_;  // one rate per batch
  std::size_t known_ = 0;      // of the batches' losses
  std::vector<double> lrs_, losses_;
};

}  // namespace halfgrad
