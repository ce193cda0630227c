#include "callbacks/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "callbacks/learner.h"

namespace halfgrad {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_seconds(double seconds) {
  const auto s = static_cast<long>(std::max(0.0, seconds));
  return s < 3600 ? fmt::format("{:02}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

Progress::Progress() : Progress(std::cout, isatty(STDOUT_FILENO) == 1) {}

void Progress::on_train_begin(Learner& learn) {
  const std::vector<std::string> names = learn.recorder().columns();
  widths_.clear();
  for (const std::string& name : names) widths_.push_back(std::max<std::size_t>(name.size(), 8));
  print_row(names);
}

void Progress::on_epoch_begin(Learner& learn) {
  epoch_started_ = last_drawn_ = seconds_now();
  batches_done_ = 0;
  batches_ = learn.data().train.size() + (learn.state.skip_validate ? 0 : learn.data().valid.size());
}

void Progress::on_batch_end(Learner& learn) {
  ++batches_done_;
  const double now = seconds_now();
  if (!bar_ || now - last_drawn_ < 0.1) return;
  last_drawn_ = now;
  constexpr std::int64_t width = 30;
  const std::int64_t done = std::min(batches_done_, batches_);
  const double left = (now - epoch_started_) / static_cast<double>(done) * static_cast<double>(batches_ - done);
  out_ << fmt::format("\r[{:<{}}] {}/{}  loss {:.4f}  {} left\x1b[K",
                      std::string(static_cast<std::size_t>(width * done / batches_), '='), width, done, batches_,
                      learn.state.smooth_loss, format_seconds(left))
       << std::flush;
  bar_drawn_ = true;
}

void Progress::on_epoch_end(Learner& learn) {
  const Recorder& recorder = learn.recorder();
  print_row(recorder.row(recorder.epochs.size() - 1));
}

void Progress::on_train_end(Learner&, std::exception_ptr) { clear_bar(); }

void Progress::print_row(const std::vector<std::string>& cells) {
  clear_bar();
  std::string row;
  for (std::size_t i = 0; i < cells.size(); ++i) row += fmt::format("{:<{}}", cells[i], widths_[i] + 2);
  row.erase(row.find_last_not_of(' ') + 1);
  out_ << row << '\n' << std::flush;
}

void Progress::clear_bar() {
  if (bar_drawn_) out_ << "\r\x1b[K" << std::flush;
  bar_drawn_ = false;
}

}  // namespace halfgrad
