#pragma once

#include <ostream>
#include <string>

#include "callbacks/callback.h"
#include "callbacks/plot.h"

namespace halfgrad {

/// The chart as plain text: `height` lines of `width` characters, with linear axes, the largest and the smallest y at
/// their left, those of x below, and under it the mark of each curve. Empty when no point is finite.
std::string text_chart(const Chart& chart, int width = 72, int height = 15);

/// fastai's ShowGraph, for a terminal: after each epoch, the training loss (smoothed) and the validation loss of the
/// run so far as a chart of plain text, without anything that only a terminal understands.
class ShowGraph : public Callback {
 public:
  /// To standard output.
  ShowGraph();
  explicit ShowGraph(std::ostream& out) : out_(out) {}
  bool in_lr_find() const override { return false; }
  void on_epoch_end(Learner& learn) override;

 private:
  std::ostream& out_;
};

}  // namespace halfgrad
