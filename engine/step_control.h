#pragma once
// What decides about one optimizer step: is it taken, and by what are its gradients multiplied?
//
// All of this is in the memory of the device that the gradients are on, and decide() runs there, so that a training step on
// a GPU is put into its queue from beginning to end without the host waiting to hear whether a gradient overflowed.
//
//   gradients --grad_stats--> sums of squares, counts of inf and NaN --decide--> GroupControl --update--> parameters
//                                                       LossScaler <----'
//
// Plain numbers and constexpr functions only: kernels for the GPU include this file, too.

#include <cstdint>

namespace halfgrad {

/// The loss scale and the counters that move it. A dynamic scale halves when a gradient was inf or NaN, and doubles after
/// max_noskip good steps in a row. Micikevicius et al., section 3.2; the numbers are fastai's.
struct LossScaler {
  double scale = 65536;
  bool dynamic = true;  ///< false: the scale never moves
  double min_scale = 1;
  double max_scale = 16777216;  // 2^24
  std::int64_t max_noskip = 1000;

  std::int64_t noskip = 0;    ///< good steps since the scale last moved
  std::int64_t skipped = 0;   ///< skipped steps, all together
  std::int64_t at_floor = 0;  ///< skipped steps in a row during which the scale could not fall

  constexpr void step_taken() {
    at_floor = 0;
    if (!dynamic || ++noskip < max_noskip) return;
    noskip = 0;
    scale = 2 * scale < max_scale ? 2 * scale : max_scale;
  }
  constexpr void step_skipped() {
    ++skipped;
    noskip = 0;
    if (dynamic && scale > min_scale) {
      at_floor = 0;
      scale = scale / 2 > min_scale ? scale / 2 : min_scale;
    } else {
      ++at_floor;
    }
  }

  bool operator==(const LossScaler&) const = default;
};

/// What a step does with the parameters of one group: the hyperparameters, which the host writes before each step, and what
/// decide() made of the gradients.
struct GroupControl {
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;  ///< of SGD and RMSprop; beta1 of Adam
  double beta2 = 0;     ///< of Adam; alpha of RMSprop

  double grad_scale = 1;  ///< gradients are multiplied by it: clip factor / loss scale
  std::int64_t skip = 0;  ///< 1: the step is not taken; nothing changes, not even step counts. The same in all groups.

  bool operator==(const GroupControl&) const = default;
};

/// About the gradients of one group as they are: of the scaled loss, before grad_scale. As f64 numbers in a row.
struct GradStats {
  double sum_of_squares = 0;
  double non_finite = 0;  ///< elements that are inf or NaN
};

inline constexpr double kNoClip = 1e300;

/// How decide() is to decide.
struct StepRule {
  double grad_scale = 1;       ///< gradients are multiplied by it, beside what follows
  double clip_each = kNoClip;  ///< the largest L2 norm of the true gradients of each group
  double clip_all = kNoClip;   ///< and then of all of them together
  bool needs_finite = false;   ///< skip the step when a gradient, or their norm as a float, is not finite

  constexpr bool needs_stats() const { return needs_finite || clip_each < kNoClip || clip_all < kNoClip; }
};

/// By what gradients of this norm are to be multiplied, as torch.nn.utils.clip_grad_norm_ has it.
constexpr double clip_multiplier(double norm, double max_norm) {
  constexpr double eps = 1e-6;
  const double factor = max_norm / (norm + eps);
  return factor > 1 ? 1 : factor;
}

/// Fills in what GroupControl says of the gradients, and moves the scaler (null: the loss is not scaled). `stats` is one per
/// group, unread when the rule needs none. `loss`: the step is skipped unless this number is finite (null: it does not
/// matter). `root` is the square root, whose name is another one on a GPU.
template <class Root>
constexpr void decide(GroupControl* groups, std::int64_t n, const GradStats* stats, LossScaler* scaler,
                      const StepRule& rule, const double* loss, Root root) {
  constexpr double largest_float = 3.4028234663852886e38;
  const double base = scaler ? rule.grad_scale / scaler->scale : rule.grad_scale;
  double sum = 0, non_finite = 0;
  for (std::int64_t i = 0; rule.needs_stats() && i < n; ++i) {
    sum += stats[i].sum_of_squares;
    non_finite += stats[i].non_finite;
  }
  bool skip = loss && !(*loss - *loss == 0);
  if (rule.needs_finite) skip = skip || non_finite > 0 || !(root(sum) * base <= largest_float);

  double clipped = 0;  // the sum of squares after clip_each, in units of base
  for (std::int64_t i = 0; i < n; ++i) {
    double factor = 1;
    if (rule.clip_each < kNoClip) factor = clip_multiplier(root(stats[i].sum_of_squares) * base, rule.clip_each);
    if (rule.clip_all < kNoClip) clipped += stats[i].sum_of_squares * factor * factor;
    groups[i].grad_scale = base * factor;
    groups[i].skip = skip ? 1 : 0;
  }
  if (rule.clip_all < kNoClip) {
    const double factor = clip_multiplier(root(clipped) * base, rule.clip_all);
    for (std::int64_t i = 0; i < n; ++i) groups[i].grad_scale *= factor;
  }
  if (scaler && skip) scaler->step_skipped();
  if (scaler && !skip) scaler->step_taken();
}

}  // namespace halfgrad
