#pragma once
// GANModule: a generator and its critic as one model, so that a Learner trains, converts and saves both (Goodfellow et
// al., "Generative adversarial nets", 2014, arXiv 1406.2661). The names are those of fastai's vision.gan.

#include "nn/module.h"

namespace halfgrad {

/// Runs the generator in generator mode, the critic in critic mode. Either way a floating input is cast to the dtype of
/// the network that it enters: so the generator's output, which is f32 for the loss, can go into an f16 critic.
class GANModule : public nn::Module {
 public:
  /// Keeps references to both networks, which must live as long as the module.
  GANModule(nn::Module& generator, nn::Module& critic, bool gen_mode = false)
      : gen_mode(gen_mode), generator_(&generator), critic_(&critic) {}

  Tensor forward(const Tensor& x) override { return gen_mode ? generate(x) : criticize(x); }
  void visit(nn::Visitor& v) override;

  /// Noise -> images. In both modes.
  Tensor generate(const Tensor& noise) const;
  /// Images -> predictions, as the critic makes them: the higher, the more real, or for a WGAN, the lower. In both modes.
  Tensor criticize(const Tensor& images) const;

  nn::Module& generator() const { return *generator_; }
  nn::Module& critic() const { return *critic_; }

  bool gen_mode;

 private:
  nn::Module* generator_;
  nn::Module* critic_;
};

}  // namespace halfgrad
