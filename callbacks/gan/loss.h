#pragma once
// The two losses of a GAN, and ready-made pairs of them.

#include <functional>
#include <utility>

#include "callbacks/gan/module.h"
#include "callbacks/learner.h"

namespace halfgrad {

/// What the two networks are trained for. Predictions have the shape in which the critic makes them; f16 ones come as
/// f32.
struct GANLosses {
  /// The generator's loss, of what the critic says about its output. `target` is the batch's: real images, or whatever
  /// the output should be like beside deceiving the critic.
  std::function<Tensor(const Tensor& fake_pred, const Tensor& target, const Tensor& output)> gen;
  std::function<Tensor(const Tensor& real_pred, const Tensor& fake_pred)> critic;
};

/// The loss of a Learner whose model is a GANModule: of the network whose turn it is.
class GANLoss {
 public:
  /// Keeps a reference to the module. Error when one of the losses is an empty function.
  GANLoss(const GANModule& gan, GANLosses losses);

  /// In generator mode generator(), in critic mode critic().
  Tensor operator()(const Tensor& output, const Tensor& target) const;
  /// Lets the critic judge the generator's output.
  Tensor generator(const Tensor& output, const Tensor& target) const;
  /// Compares the critic's predictions for real images with those for images that the generator makes of `input`. No
  /// gradient reaches the generator.
  Tensor critic(const Tensor& real_pred, const Tensor& input) const;

 private:
  const GANModule* gan_;
  GANLosses losses_;
};

struct GANLossWeights {
  double critic = 1;  ///< of what the critic says
  double gen = 1;     ///< of loss_gen
};

/// With ones for real and zeros for fake: the generator's loss is weights.critic * loss_crit(fake_pred, ones) +
/// weights.gen * loss_gen(output, target), the second only when there is a loss_gen; the critic's is the mean of
/// loss_crit(real_pred, ones) and loss_crit(fake_pred, zeros).
GANLosses gan_loss_from_func(const LossFn& loss_gen, const LossFn& loss_crit, const GANLossWeights& weights = {});

/// gan_loss_from_func() with binary cross entropy, for a critic that makes logits: the losses of DCGAN, the generator's
/// being the one that does not saturate (Goodfellow et al., 2014, section 3).
GANLosses bce_gan_losses();

/// Of a Wasserstein GAN (Arjovsky, Chintala and Bottou, 2017, arXiv 1701.07875), with fastai's sign: the critic minimises
/// mean(real_pred) - mean(fake_pred), the generator mean(fake_pred).
GANLosses wasserstein_losses();

}  // namespace halfgrad
