#include "callbacks/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "callbacks/learner.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"
#include "engine/ops/softmax.h"

namespace halfgrad {

namespace {

std::int64_t correct(const std::vector<std::int64_t>& targets, const std::vector<std::int64_t>& predicted) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) count += targets[i] == predicted[i];
  return count;
}

bool is_classification(const Tensor& outputs, const Tensor& targets) {
  return outputs.rank() == 2 && targets.defined() && targets.dtype() == i64 && targets.rank() == 1;
}

// Up to six numbers of one sample.
std::string numbers_of(const Tensor& x) {
  std::string text;
  const std::vector<double> values = x.to(f64).to_vector<double>();
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 6); ++i)
    text += fmt::format("{}{:.4g}", i == 0 ? "" : " ", values[i]);
  return values.size() > 6 ? text + " ..." : text;
}

// Columns as wide as their widest cell.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], widths[i]) : row[i];
    text += '\n';
  }
  return text;
}

}  // namespace

ClassificationInterpretation::ClassificationInterpretation(const Tensor& scores, const Tensor& targets,
                                                           std::vector<double> losses, std::vector<std::string> classes)
    : losses_(std::move(losses)), classes_(std::move(classes)) {
  check(is_classification(scores, targets) && scores.size(0) == targets.size(0) &&
            static_cast<std::size_t>(scores.size(0)) == losses_.size() && scores.size(1) > 0,
        "interpret: scores are {}, targets {} {}, losses {}; expected [N, C], i64 [N] and N: this is for classifiers",
        scores.shape(), targets.defined() ? name_of(targets.dtype()) : "undefined",
        targets.defined() ? targets.shape().str() : "", losses_.size());
  n_classes_ = scores.size(1);
  if (classes_.empty())
    for (std::int64_t c = 0; c < n_classes_; ++c) classes_.push_back(std::to_string(c));
  check(std::ssize(classes_) == n_classes_, "interpret: {} names for {} classes", classes_.size(), n_classes_);
  targets_ = targets.to_vector<std::int64_t>();
  for (const std::int64_t target : targets_)
    check(target >= 0 && target < n_classes_, "interpret: a target is class {}; the model has {}", target, n_classes_);

  const NoGrad guard;
  const Tensor probabilities = softmax(scores.to(f32), 1);
  predicted_ = argmax(scores, 1).to_vector<std::int64_t>();
  probabilities_ = gather(probabilities, 1, targets.unsqueeze(1)).to_vector<double>();
}

Tensor ClassificationInterpretation::confusion_matrix() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(n_classes_ * n_classes_));
  for (std::size_t i = 0; i < targets_.size(); ++i)
    ++counts[static_cast<std::size_t>(targets_[i] * n_classes_ + predicted_[i])];
  return from_vector(counts, {n_classes_, n_classes_});
}

std::string ClassificationInterpretation::confusion_table() const {
  std::vector<std::vector<std::string>> rows(1, {"actual \\ predicted"});
  rows[0].insert(rows[0].end(), classes_.begin(), classes_.end());
  const std::vector<std::int64_t> counts = confusion_matrix().to_vector<std::int64_t>();
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    rows.push_back({classes_[c]});
    for (std::size_t p = 0; p < classes_.size(); ++p)
      rows.back().push_back(std::to_string(counts[c * classes_.size() + p]));
  }
  return aligned(rows);
}

std::vector<ClassificationInterpretation::Confusion> ClassificationInterpretation::most_confused(
    std::int64_t min_count) const {
  std::vector<Confusion> result;
  const std::vector<std::int64_t> counts = confusion_matrix().to_vector<std::int64_t>();
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (std::size_t p = 0; p < classes_.size(); ++p)
      if (const std::int64_t count = counts[c * classes_.size() + p];
          c != p && count >= std::max<std::int64_t>(min_count, 1))
        result.push_back({classes_[c], classes_[p], count});
  std::stable_sort(result.begin(), result.end(),
                   [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  return result;
}

ClassificationInterpretation::Sample ClassificationInterpretation::sample(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return {index, losses_[i], classes_[static_cast<std::size_t>(targets_[i])],
          classes_[static_cast<std::size_t>(predicted_[i])], probabilities_[i]};
}

std::vector<ClassificationInterpretation::Sample> ClassificationInterpretation::top_losses(std::int64_t k,
                                                                                           bool largest) const {
  check(k >= 0, "top_losses: k is {}; expected 0 or more", k);
  std::vector<std::int64_t> order(losses_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto rank = [&](std::int64_t i) {
    const double loss = losses_[static_cast<std::size_t>(i)];
    return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return largest ? rank(a) > rank(b) : rank(a) < rank(b); });
  std::vector<Sample> result;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(k, std::ssize(order)); ++i)
    result.push_back(sample(order[static_cast<std::size_t>(i)]));
  return result;
}

std::string ClassificationInterpretation::str() const {
  const std::int64_t right = correct(targets_, predicted_);
  std::string text = fmt::format("{} of {} are right\n\nmost confused\n", right, targets_.size());
  std::vector<std::vector<std::string>> confused(1, {"actual", "predicted", "count"});
  for (const auto& [actual, predicted, count] : most_confused()) {
    if (confused.size() > 10) break;
    confused.push_back({actual, predicted, std::to_string(count)});
  }
  std::vector<std::vector<std::string>> top(1, {"item", "loss", "actual", "predicted", "probability of actual"});
  for (const Sample& s : top_losses())
    top.push_back({std::to_string(s.index), fmt::format("{:.4f}", s.loss), s.actual, s.predicted,
                   fmt::format("{:.4f}", s.probability)});
  return text + aligned(confused) + "\ntop losses\n" + aligned(top);
}

// --- in a Learner ----------------------------------------------------------------------------------------------------

std::vector<double> Learner::losses_of(const Tensor& outputs, const Tensor& targets) const {
  const NoGrad guard;
  std::vector<double> losses;
  for (std::int64_t i = 0; i < outputs.size(0); ++i)
    losses.push_back(loss_(outputs.narrow(0, i, 1), targets.narrow(0, i, 1)).item());
  return losses;
}

ClassificationInterpretation Learner::interpret(const std::vector<std::string>& classes) {
  const auto [outputs, targets] = get_preds();
  check(targets.defined(), "interpret: the validation data has no targets");
  return {outputs, targets, losses_of(outputs, targets), classes};
}

std::string Learner::show_results(std::int64_t rows, const std::vector<std::string>& classes) {
  check(rows > 0, "show_results: {} rows; expected at least one", rows);
  const data::BatchIterator first = data_.valid.begin();
  check(first != data_.valid.end(), "show_results: there is no validation data");
  const Tensor outputs = predict(first->inputs);
  const Tensor targets = first->targets.empty() ? Tensor() : first->targets.front().to(outputs.device());
  const bool named = is_classification(outputs, targets);
  check(!named || classes.empty() || std::ssize(classes) == outputs.size(1), "show_results: {} names for {} classes",
        classes.size(), outputs.size(1));
  const auto class_name = [&](std::int64_t c) {
    return c >= 0 && c < std::ssize(classes) ? classes[static_cast<std::size_t>(c)] : std::to_string(c);
  };

  std::vector<std::vector<std::string>> table(1, {"item", "target", "prediction", "loss"});
  const std::int64_t n = std::min(rows, outputs.size(0));
  const std::vector<double> losses =
      targets.defined() ? losses_of(outputs.narrow(0, 0, n), targets.narrow(0, 0, n)) : std::vector<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    std::string prediction = numbers_of(outputs[i]), target = targets.defined() ? numbers_of(targets[i]) : "";
    if (named) {
      const Tensor probabilities = softmax(outputs[i].to(f32), 0);
      const auto predicted = argmax(probabilities, 0).item<std::int64_t>();
      prediction = fmt::format("{} ({:.3f})", class_name(predicted), probabilities[predicted].item());
      target = class_name(targets[i].item<std::int64_t>());
    }
    table.push_back({std::to_string(i), target, prediction,
                     losses.empty() ? "" : fmt::format("{:.4f}", losses[static_cast<std::size_t>(i)])});
  }
  return aligned(table);
}

}  // namespace halfgrad
