#pragma once
// Trackers look at a number after each epoch, or at the loss of each batch, and act when it is as it should not be.

#include <cstdint>
#include <optional>
#include <string>

#include "callbacks/callback.h"

namespace halfgrad {

/// Is a smaller or a larger number the better one? `automatic` goes by the name: smaller, if it contains "loss",
/// "error", "mse" or "mae".
enum class TrackMode { automatic, min, max };

/// Base of callbacks that watch "train_loss" (smoothed), "valid_loss" or a metric, by its name. A name that is none of
/// these, or one that needs validation where there is no validation data, is an Error when the run begins; an epoch
/// that was not validated is one when it ends, unless the run stops there anyway.
class TrackerCallback : public Callback {
 public:
  /// Before the Recorder.
  int order() const override { return -20; }
  bool in_lr_find() const override { return false; }
  void on_train_begin(Learner& learn) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

  /// Of this run so far: infinite before the first epoch's end.
  double best() const { return best_; }
  InGraph in_graph() const override { return InGraph::watches; }

 protected:
  TrackerCallback(std::string monitor, TrackMode mode, double min_delta = 0);
  /// The value of the epoch that has just ended. Nothing when the run is being stopped without validation.
  std::optional<double> monitored(const Learner& learn) const;
  /// Is `value` better than the best by more than min_delta? If so, it is the best from now on. A NaN is never better.
  bool improves(double value);

 private:
  std::string monitor_;
  bool lower_is_better_;
  double min_delta_;
  double best_ = 0;
};

/// Base of trackers that act once the monitored value has not improved for more than `patience` epochs in a row.
class PatientTracker : public TrackerCallback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 protected:
  PatientTracker(std::string monitor, TrackMode mode, double min_delta, std::int64_t patience);
  virtual void out_of_patience(Learner& learn) = 0;

 private:
  std::int64_t patience_, waited_ = 0;
};

struct EarlyStoppingOptions {
  std::string monitor = "valid_loss";
  TrackMode mode = TrackMode::automatic;
  double min_delta = 0;       ///< what is not better by more than this is no improvement
  std::int64_t patience = 0;  ///< epochs in a row without improvement that are borne
};

/// Ends the run after this epoch.
class EarlyStopping : public PatientTracker {
 public:
  /// Error when min_delta or patience is negative.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

 protected:
  void out_of_patience(Learner& learn) override;
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "valid_loss";
  TrackMode mode = TrackMode::automatic;
  std::int64_t patience = 0;  ///< epochs in a row without improvement that are borne
  double factor = 0.2;
  double min_delta = 0;  ///< what is not better by more than this is no improvement
};

/// Multiplies the learning rate of all groups, in all optimizers, by `factor`, and begins to wait anew. Beside a
/// PhaseScheduler, which sets the rate before each batch, it is an Error.
class ReduceLROnPlateau : public PatientTracker {
 public:
  /// Error when min_delta or patience is negative, or factor not between 0 and 1.
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});
  void on_train_begin(Learner& learn) override;

 protected:
  void out_of_patience(Learner& learn) override;

 private:
  double factor_;
};

struct TerminateOnNaNOptions {
  /// Batches in a row with such a loss that end a run in mixed precision.
  std::int64_t patience = 10;
};

/// Ends the run, without validation and without an error, at a training loss that is inf or NaN. In plain training the
/// first one does: it never reaches a weight, and FiniteLoss, which would throw, finds the run stopped. In mixed
/// precision the loss scaler skips the step of such a batch, so that only a loss that stays so for `patience` batches
/// ends it; left alone, the scaler would throw later on.
class TerminateOnNaN : public Callback {
 public:
  explicit TerminateOnNaN(const TerminateOnNaNOptions& options = {});
  bool in_lr_find() const override { return false; }
  void on_train_begin(Learner& learn) override;
  /// Before FiniteLoss's.
  void on_loss_known(Learner& learn, const KnownLoss& known) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

  /// Has it ended the last run?
  bool terminated() const { return terminated_; }
  InGraph in_graph() const override { return InGraph::watches; }

 private:
  TerminateOnNaNOptions options_;
  std::int64_t in_a_row_ = 0;
  bool terminated_ = false;
};

}  // namespace halfgrad
