#pragma once
// Mixed precision training: f16 weights, activations and gradients; f32 master weights; a scaled loss.
// Micikevicius et al., Mixed Precision Training, 2017 (arXiv 1710.03740).

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/callback.h"
#include "optim/grad_scaler.h"
#include "optim/optimizer.h"

namespace halfgrad {

struct MixedPrecisionOptions {
  std::optional<double> loss_scale = {};  ///< by default 2^16 when dynamic, else 512
  std::int64_t max_noskip = 1000;         ///< good steps after which a dynamic scale doubles
  bool dynamic = true;
  std::optional<double> clip = {};  ///< largest L2 norm of all true (unscaled, f32) gradients together
  bool flat_master = false;         ///< masters in one contiguous vector per parameter group; the same bits
  double max_scale = 16777216;      ///< 2^24
  bool loss_fp32 = true;            ///< the loss sees the output as f32
  double min_scale = 1;
  bool clip_per_group = false;  ///< `clip` bounds the norm of each parameter group by itself
  /// False: no masters, the optimizer rounds each update into the f16 weights. Only to see what that costs.
  bool masters = true;
};

/// What Learner::to_fp16 adds to a Learner. Its work on one batch, by hand, is plain_mixed_precision_step
/// below.
class MixedPrecision : public Callback {
 public:
  /// Error when an option is out of its range.
  explicit MixedPrecision(const MixedPrecisionOptions& options = {});

  /// The model to f16, and f32 masters with the exact values that its parameters had before.
  void convert(Learner& learn);

  /// Makes masters of parameters that have been unfrozen, and takes over weights that were changed from outside (by
  /// load_state_dict for example): a parameter that is not its rounded master.
  void adopt_changed_weights(Learner& learn) const;

  /// After every other callback, so that none of them sees a scaled number.
  int order() const override { return 999; }
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_backward_end(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;

  const MixedPrecisionOptions& options() const { return options_; }
  /// Each optimizer of the Learner has its own: a GAN's generator and critic overflow at different scales.
  /// On a GPU this waits for the steps that were asked for.
  LossScaler scaler(std::size_t optimizer = 0) const { return scalers_[optimizer].state(); }
  /// For a checkpoint that is loaded.
  void set_scaler(const LossScaler& scaler, std::size_t optimizer = 0) { scalers_[optimizer].set_state(scaler); }
  InGraph in_graph() const override { return InGraph::is_part; }

 private:
  /// Error after too many skipped steps in a row, as soon as the host knows of them.
  void look_at_scalers(Learner& learn, bool wait);

  MixedPrecisionOptions options_;
  std::vector<optim::GradScaler> scalers_;
  bool steps_ = false;                            // this batch makes a step
  std::deque<std::unique_ptr<Download>> coming_;  // LossScalers on their way to the host, one after each step
};

/// The readable reference of a training step from f16 gradients to f16 weights, one plain tensor operation
/// after the other. `optimizer` updates masters[i], an f32 leaf for params[i]. Returns false, with nothing
/// changed, when a gradient is not finite. The fused passes of MixedPrecision and Optimizer::step give the
/// same bits.
bool plain_mixed_precision_step(const Tensors& params, const Tensors& masters, optim::Optimizer& optimizer,
                                double loss_scale, std::optional<double> clip = {});

/// The first tensor that is not finite: runs the last batch through the model again, checking inputs,
/// parameters and outputs in forward order, then the gradients. For example "the output of layer 'fc1' (Linear), whose
/// largest finite magnitude is 65280".
std::string first_non_finite(Learner& learn);

}  // namespace halfgrad
