#include "callbacks/gan/loss.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "nn/loss.h"

namespace halfgrad {

namespace {
// As MixedPrecision does with an output.
Tensor for_loss(const Tensor& x) { return x.dtype() == f16 ? cast(x, f32) : x; }
}  // namespace

GANLoss::GANLoss(const GANModule& gan, GANLosses losses) : gan_(&gan), losses_(std::move(losses)) {
  check(losses_.gen && losses_.critic, "GANLoss: the loss of the {} is an empty function",
        losses_.gen ? "critic" : "generator");
}

Tensor GANLoss::operator()(const Tensor& output, const Tensor& target) const {
  return gan_->gen_mode ? generator(output, target) : critic(output, target);
}

Tensor GANLoss::generator(const Tensor& output, const Tensor& target) const {
  return losses_.gen(for_loss(gan_->criticize(output)), target, output);
}

Tensor GANLoss::critic(const Tensor& real_pred, const Tensor& input) const {
  Tensor fake;
  {
    const NoGrad guard;
    fake = gan_->generate(input);
  }
  return losses_.critic(for_loss(real_pred), for_loss(gan_->criticize(fake)));
}

GANLosses gan_loss_from_func(const LossFn& loss_gen, const LossFn& loss_crit, const GANLossWeights& weights) {
  check(static_cast<bool>(loss_crit), "gan_loss_from_func: loss_crit is an empty function");
  return {.gen =
              [=](const Tensor& fake_pred, const Tensor& target, const Tensor& output) {
                const Tensor adversarial = weights.critic * loss_crit(fake_pred, ones_like(fake_pred));
                return loss_gen ? adversarial + weights.gen * loss_gen(output, target) : adversarial;
              },
          .critic =
              [=](const Tensor& real_pred, const Tensor& fake_pred) {
                return (loss_crit(real_pred, ones_like(real_pred)) + loss_crit(fake_pred, zeros_like(fake_pred))) / 2;
              }};
}

GANLosses bce_gan_losses() { return gan_loss_from_func(nullptr, nn::binary_cross_entropy_with_logits); }

GANLosses wasserstein_losses() {
  return {.gen = [](const Tensor& fake_pred, const Tensor&, const Tensor&) { return mean(fake_pred); },
          .critic = [](const Tensor& real_pred, const Tensor& fake_pred) { return mean(real_pred) - mean(fake_pred); }};
}

}  // namespace halfgrad
