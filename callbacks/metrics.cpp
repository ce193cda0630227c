#include "callbacks/metrics.h"

#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"

namespace halfgrad {
namespace {

void check_classes(const char* name, const Tensor& output, const Tensor& target) {
  Shape expected = output.shape();
  if (output.rank() >= 2) expected.erase(1);
  check(output.rank() >= 2 && target.dtype() == i64 && target.shape() == expected,
        "{}: output {} and target {} {}; expected scores [N, C, *] and class indices i64 [N, *]", name, output.shape(),
        name_of(target.dtype()), target.shape());
}

double share_of(const Tensor& condition) { return mean(cast(condition, f32)).item(); }

double accuracy_of(const char* name, const Tensor& output, const Tensor& target) {
  check_classes(name, output, target);
  return share_of(argmax(output, 1) == target);
}

// The place of the target's score among all scores, 0 being the highest; of equal ones the first leads, as in
// argmax. A NaN counts as higher than any number.
Tensor place_of_target(const Tensor& output, const Tensor& target) {
  const Tensor index = target.unsqueeze(1);
  const Tensor score = gather(output, 1, index);
  Shape along_classes(static_cast<std::size_t>(output.rank()), 1);
  along_classes[1] = output.size(1);
  const Tensor classes = arange(output.size(1)).to(output.device()).reshape(along_classes);
  const Tensor higher = !(output <= score);
  const Tensor equal_before = logical_and(output == score, classes < index);
  return sum(logical_or(higher, equal_before), {1});
}

}  // namespace

const Metric accuracy{
    "accuracy", [](const Tensor& output, const Tensor& target) { return accuracy_of("accuracy", output, target); }};

const Metric error_rate{"error_rate", [](const Tensor& output, const Tensor& target) {
                          return 1 - accuracy_of("error_rate", output, target);
                        }};

Metric top_k_accuracy(std::int64_t k) {
  const std::string name = fmt::format("top_{}_accuracy", k);
  check(k >= 1, "{}: k must be at least 1", name);
  return {name, [=](const Tensor& output, const Tensor& target) {
            check_classes(name.c_str(), output, target);
            check(k <= output.size(1), "{}: there are only {} classes", name, output.size(1));
            return share_of(place_of_target(output, target) < k);
          }};
}

const Metric mse{"mse", [](const Tensor& output, const Tensor& target) {
                   check(output.shape() == target.shape(), "mse: output {} and target {} differ in shape",
                         output.shape(), target.shape());
                   return mean(square(cast(output, f32) - cast(target, f32))).item();
                 }};

void MetricAverages::add(double loss, const Tensor& output, const Tensor& target) {
  const std::int64_t n = target.rank() == 0 ? 1 : target.size(0);
  samples_ += n;
  sums_[0] += loss * static_cast<double>(n);
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    sums_[i + 1] += metrics_[i].value(output, target) * static_cast<double>(n);
}

std::vector<double> MetricAverages::values() const {
  if (samples_ == 0) return {};
  std::vector<double> means = sums_;
  for (double& value : means) value /= static_cast<double>(samples_);
  return means;
}

double Smoother::add(double value) {
  if (std::isfinite(value)) {
    sum_ = beta_ * sum_ + (1 - beta_) * value;
    weight_ = beta_ * weight_ + (1 - beta_);
  }
  return weight_ > 0 ? sum_ / weight_ : value;
}

}  // namespace halfgrad
