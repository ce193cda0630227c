#pragma once
// Losses, as in PyTorch. Every one computes in f32 for f16 operands and rounds its result once to f16.

#include "engine/tensor.h"

namespace halfgrad {

/// What becomes of the losses of the single elements: their mean, their sum, or the tensor of them all.
enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  Tensor weight = {};                ///< [C], a factor for each class
  double label_smoothing = 0;        ///< in [0, 1]: this share of the target is spread evenly over all classes
  std::int64_t ignore_index = -100;  ///< positions with this target count for nothing
  Reduction reduction = Reduction::mean;
};
/// Minus the log-probability of the target: logits [N, C, *]; target either i64 class indices [N, *] or
/// floating class probabilities [N, C, *] (ignore_index then means nothing). The mean over class indices
/// divides by the sum of the targets' weights, ignored ones excluded; the mean over probabilities divides by
/// the number of positions.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

struct NllOptions {
  Tensor weight = {};
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// cross_entropy of log-probabilities [N, C, *] and i64 class indices [N, *].
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NllOptions& options = {});

struct ElementLossOptions {
  Reduction reduction = Reduction::mean;
};
/// (output - target)^2. The shapes must be equal, here and below: a broadcast [N, 1] against [N] is never
/// meant.
Tensor mse_loss(const Tensor& output, const Tensor& target, const ElementLossOptions& options = {});
/// |output - target|
Tensor l1_loss(const Tensor& output, const Tensor& target, const ElementLossOptions& options = {});

struct SmoothL1Options {
  double beta = 1;  ///< where the parabola ends; 0 gives l1_loss
  Reduction reduction = Reduction::mean;
};
/// With d = |output - target|: d^2 / (2 beta) for d < beta, else d - beta/2.
Tensor smooth_l1_loss(const Tensor& output, const Tensor& target, const SmoothL1Options& options = {});

struct BceOptions {
  Tensor weight = {};      ///< a factor for each element; broadcasts
  Tensor pos_weight = {};  ///< a factor for the positive part, e.g. one per class; broadcasts
  Reduction reduction = Reduction::mean;
};
/// -(pos_weight * target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x))) * weight, without overflow
/// for any logit x; target holds probabilities.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options = {});

}  // namespace halfgrad
