#pragma once

#include <string>

#include "callbacks/callback.h"

namespace halfgrad {

/// fastai's CSVLogger: a line per epoch with its number, train_loss, valid_loss, the metrics and the time in seconds,
/// in full precision, under a line of names. What was not validated is an empty cell.
///
/// The file is written as a whole each time: whenever a run is killed, it holds whole lines. It begins anew with each
/// run, unless `append`; then the lines go below those that are there, which is an Error if they have other columns. A
/// run that is resumed from a checkpoint goes on below the lines of the epochs before that.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::string path, bool append = false) : path_(std::move(path)), append_(append) {}

  bool in_lr_find() const override { return false; }
  void on_train_begin(Learner& learn) override;
  /// Also here, so that a file that cannot be written is an Error before there is an epoch to lose.
  void on_epoch_begin(Learner& learn) override { write(learn); }
  void on_epoch_end(Learner& learn) override { write(learn); }
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;
  InGraph in_graph() const override { return InGraph::watches; }

 private:
  void write(const Learner& learn) const;

  std::string path_;
  bool append_;
  std::string before_;  // what the file held before the run
};

}  // namespace halfgrad
