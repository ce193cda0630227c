#pragma once
// What a run prints: a table with a line per epoch, and on a terminal a bar while an epoch runs.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "callbacks/callback.h"

namespace halfgrad {

/// epoch, train_loss, valid_loss, the metrics and the time, in aligned columns; and below it, where `bar`
/// says so, batches done, smoothed loss and time left, redrawn a few times a second.
class Progress : public Callback {
 public:
  /// To standard output; the bar only when that is a terminal.
  Progress();
  Progress(std::ostream& out, bool bar) : out_(out), bar_(bar) {}

  /// After the Recorder, whose table line it prints.
  int order() const override { return -5; }
  bool in_lr_find() const override { return false; }
  InGraph in_graph() const override { return InGraph::watches; }
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;

 private:
  void print_row(const std::vector<std::string>& cells);
  void clear_bar();

  std::ostream& out_;
  bool bar_;
  bool bar_drawn_ = false;
  double epoch_started_ = 0, last_drawn_ = 0;
  std::int64_t batches_done_ = 0, batches_ = 0;  // of this epoch, training and validation
  std::vector<std::size_t> widths_;
};

/// Of a clock that never goes back.
double seconds_now();
/// "01:05", "1:02:03"
std::string format_seconds(double seconds);

}  // namespace halfgrad
