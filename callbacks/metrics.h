#pragma once
// What validation reports beside the loss.

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace halfgrad {

/// A number for a batch that is a mean over its samples: `{.metrics = {accuracy, top_k_accuracy(3)}}`, or one
/// of your own, `Metric{"mae", [](const Tensor& output, const Tensor& target) { return ...; }}`.
struct Metric {
  std::string name;
  std::function<double(const Tensor& output, const Tensor& target)> value;
};

// For class scores [N, C, *] and class indices i64 [N, *].
extern const Metric accuracy;
extern const Metric error_rate;
/// How often the right class is among the k with the highest scores. Error when k is not in 1 ... C.
Metric top_k_accuracy(std::int64_t k = 5);

// For outputs and targets of one shape.
extern const Metric mse;

/// Averages over samples, so that a short last batch weighs what it should.
class MetricAverages {
 public:
  explicit MetricAverages(const std::vector<Metric>& metrics) : metrics_(metrics), sums_(metrics.size() + 1) {}
  void add(double loss, const Tensor& output, const Tensor& target);
  /// The loss, then the metrics; empty without a sample.
  std::vector<double> values() const;

 private:
  const std::vector<Metric>& metrics_;
  std::vector<double> sums_;
  std::int64_t samples_ = 0;
};

/// An exponential average whose start is not pulled towards 0 (Kingma and Ba's debiasing). Values that are
/// not finite are left out: they belong to batches that are skipped.
class Smoother {
 public:
  explicit Smoother(double beta = 0.98) : beta_(beta) {}
  /// The average with `value`.
  double add(double value);
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  /// For checkpoints.
  std::pair<double, double> state() const { return {sum_, weight_}; }
  void set_state(const std::pair<double, double>& state) { std::tie(sum_, weight_) = state; }

 private:
  double beta_, sum_ = 0, weight_ = 0;
};

}  // namespace halfgrad
