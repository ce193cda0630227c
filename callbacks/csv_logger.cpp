#include "callbacks/csv_logger.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "callbacks/csv.h"
#include "callbacks/learner.h"
#include "engine/io/atomic_file.h"

namespace halfgrad {

void CSVLogger::on_train_begin(Learner&) {
  before_.clear();
  if (!append_) return;
  std::ifstream file(path_, std::ios::binary);
  before_.assign(std::istreambuf_iterator<char>(file), {});
  if (!before_.empty() && before_.back() != '\n') before_ += '\n';
}

void CSVLogger::write(const Learner& learn) const {
  const Recorder& recorder = learn.recorder();
  const std::vector<std::string> columns = recorder.columns();
  const std::string names = csv_line(columns);
  check(before_.empty() || before_.starts_with(names),
        "CSVLogger: '{}' begins with other columns than this run has, {}; append to another file", path_,
        names.substr(0, names.size() - 1));
  std::string text = before_.empty() ? names : before_;
  for (std::size_t i = 0; i < recorder.epochs.size(); ++i) {
    const Recorder::Epoch& epoch = recorder.epochs[i];
    std::vector<std::string> cells = {std::to_string(i), fmt::format("{}", epoch.train_loss)};
    for (const double value : epoch.metrics) cells.push_back(fmt::format("{}", value));
    cells.resize(columns.size() - 1);
    cells.push_back(fmt::format("{:.3f}", epoch.seconds));
    text += csv_line(cells);
  }
  write_file_atomically(path_, text);
}

SavedState CSVLogger::save_state() const {
  return {.numbers = {{"bytes_before", static_cast<double>(before_.size())}}};
}

void CSVLogger::load_state(const SavedState& state) {
  before_.resize(std::min(before_.size(), static_cast<std::size_t>(state.number("bytes_before"))));
}

}  // namespace halfgrad
