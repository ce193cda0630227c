#pragma once

#include "callbacks/trackers.h"

namespace halfgrad {

struct SaveModelOptions {
  enum class Every { improvement, epoch, batches };
  /// Of the checkpoint. "{}" in it stands for the number of the epoch; without, each replaces the one before.
  std::string path = "bestmodel.safetensors";
  Every every = Every::improvement;
  std::int64_t batches = 100;  ///< with Every::batches: training batches from one to the next
  /// With Every::improvement: what must be better than ever, see TrackerCallback.
  std::string monitor = "valid_loss";
  TrackMode mode = TrackMode::automatic;
  double min_delta = 0;
  /// With Every::improvement: a run that ends without an error loads the best checkpoint of this run.
  bool load_best = true;
};

/// Learner::save at the end of an epoch, of each or only of those that are better than all before, or after every so many
/// batches. A run that is killed can go on from the file: Learner::resume.
class SaveModel : public TrackerCallback {
 public:
  /// Error for an empty path, for one with "{}" beside Every::improvement, and for less than one batch.
  explicit SaveModel(const SaveModelOptions& options = {});
  /// After every other callback, so that what they do at the same event is part of the checkpoint.
  int order() const override { return 1000; }
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 private:
  void save(Learner& learn) const;

  SaveModelOptions options_;
  bool saved_ = false;  // by this run
};

}  // namespace halfgrad
