#pragma once

#include "callbacks/callback.h"
#include "engine/random.h"

namespace halfgrad {

/// A number in [0, 1] from the Beta(a, b) distribution: X / (X + Y) with X from Gamma(a) and Y from Gamma(b), which are
/// drawn as in Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. Works for any positive a
/// and b, very small ones included; Error for others.
double random_beta(double a, double b, Generator& generator = default_generator());

struct MixUpOptions {
  double alpha = 0.4;  ///< small: most pairs are hardly mixed; 1: any share is as likely
};

/// Trains on mixtures of samples (Zhang et al., "mixup: beyond empirical risk minimization", 2018): each sample i of a
/// batch is mixed with another one j, by a random order of the batch, as lambda * x_i + (1 - lambda) * x_j. As in
/// fastai every sample has its own lambda from Beta(alpha, alpha), the larger one of lambda and 1 - lambda.
///
/// Targets are mixed likewise. Class indices (i64 [N, *], for an output [N, C, *]) become the probabilities lambda for
/// y_i and 1 - lambda for y_j. cross_entropy is linear in them: this is lambda * loss(y_i) + (1 - lambda) * loss(y_j),
/// which fastai computes by calling the loss twice (stack_y). Class weights then weigh positions' losses without being
/// divided by their sum, and ignore_index cannot be used. Floating targets are mixed as they are, which comes to the
/// same for binary_cross_entropy, and for mse_loss but for a number that does not depend on the model.
///
/// In training only. The random numbers are of default_generator().
class MixUp : public Callback {
 public:
  /// Error when alpha is not positive.
  explicit MixUp(const MixUpOptions& options = {});
  /// Mixes the inputs; Error for one that is not floating.
  void on_batch_begin(Learner& learn) override;
  /// Mixes the targets, now that the output tells the number of classes.
  void on_loss_begin(Learner& learn) override;

 private:
  /// lambda * x + (1 - lambda) * x[others] in x's dtype, rounded once.
  Tensor mixed(const Tensor& x) const;

  MixUpOptions options_;
  Tensor lambda_;  // f32 [N]
  Tensor others_;  // i64 [N]
};

}  // namespace halfgrad
