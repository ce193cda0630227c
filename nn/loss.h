#pragma once
// Losses as values that a Learner takes: `nn::cross_entropy`, or with options
// `nn::CrossEntropyLoss({.label_smoothing = 0.1})`.

#include "engine/ops/loss.h"

namespace halfgrad::nn {

/// A loss function with its options: called with (output, target).
template <class Options, Tensor (*function)(const Tensor&, const Tensor&, const Options&)>
struct Loss {
  Options options;
  Loss(const Options& options = {}) : options(options) {}
  Tensor operator()(const Tensor& output, const Tensor& target) const { return function(output, target, options); }
};

using CrossEntropyLoss = Loss<CrossEntropyOptions, halfgrad::cross_entropy>;
using NllLoss = Loss<NllOptions, halfgrad::nll_loss>;
using MseLoss = Loss<ElementLossOptions, halfgrad::mse_loss>;
using L1Loss = Loss<ElementLossOptions, halfgrad::l1_loss>;
using SmoothL1Loss = Loss<SmoothL1Options, halfgrad::smooth_l1_loss>;
using BceWithLogitsLoss = Loss<BceOptions, halfgrad::binary_cross_entropy_with_logits>;

inline const CrossEntropyLoss cross_entropy;
inline const NllLoss nll_loss;
inline const MseLoss mse_loss;
inline const L1Loss l1_loss;
inline const SmoothL1Loss smooth_l1_loss;
inline const BceWithLogitsLoss binary_cross_entropy_with_logits;

}  // namespace halfgrad::nn
