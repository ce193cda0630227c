#pragma once
// GANLearner: a Learner for a generator and a critic.
//
//   nn::Sequential generator = basic_generator(32, 1), critic = basic_critic(32, 1);
//   GANLearner learn(data, generator, critic, bce_gan_losses());
//   learn.to_fp16();
//   learn.fit(5);
//   Tensor images = learn.generate(randn({64, 100, 1, 1}));

#include <memory>
#include <optional>
#include <vector>

#include "callbacks/gan/loss.h"
#include "callbacks/gan/switchers.h"
#include "callbacks/gan/trainer.h"
#include "callbacks/learner.h"

namespace halfgrad {

struct GANLearnerOptions {
  /// Each network's optimizer. By default Adam as for DCGAN (Radford et al., 2015, arXiv 1511.06434): rate 2e-4, beta1
  /// 0.5; with wgan(), RMSprop with rate 5e-5.
  optim::OptimizerFactory gen_opt = {}, critic_opt = {};
  CallbackPtr switcher = {};  ///< by default FixedGANSwitcher({.n_crit = 5, .n_gen = 1})
  bool gen_first = false;     ///< a run begins with the generator
  bool switch_eval = true;    ///< the network whose turn it is not is in eval mode
  /// Keeps the critic's weights in [-clip, clip]; by default it does not, with wgan() 0.01.
  std::optional<double> clip = {};
  double beta = 0.98;  ///< of the averages of gen_loss and critic_loss
  std::vector<Metric> metrics = {};
  std::vector<CallbackPtr> callbacks = {};
  bool silent = false;
};

namespace detail {
// A base, so that it exists before the Learner, which refers to it.
struct GANParts {
  GANParts(nn::Module& generator, nn::Module& critic, const GANTrainerOptions& options)
      : gan(generator, critic, true), trainer(std::make_shared<GANTrainer>(gan, options)) {}
  GANModule gan;
  std::shared_ptr<GANTrainer> trainer;
};
}  // namespace detail

class GANLearner : private detail::GANParts, public Learner {
 public:
  /// `data`: noise as input, images as target (data::NoiseToImage makes both of images). Keeps references to the networks,
  /// which must live as long as the Learner. The epoch table shows gen_loss and critic_loss; a fit without a learning rate
  /// leaves each optimizer its own.
  GANLearner(data::Data data, nn::Module& generator, nn::Module& critic, GANLosses losses,
             const GANLearnerOptions& options = {});
  /// A Wasserstein GAN with clamped weights, by the defaults of Arjovsky et al. (arXiv 1701.07875): wasserstein_losses(),
  /// 5 batches for the critic to one for the generator.
  static GANLearner wgan(data::Data data, nn::Module& generator, nn::Module& critic, GANLearnerOptions options = {});

  /// The generator's images for this noise, as predict() runs a model: in eval mode, without a graph, f32 in mixed
  /// precision too. Also within a run, between steps, whosever turn it is.
  Tensor generate(const Tensor& noise);

  nn::Module& generator() const { return gan.generator(); }
  nn::Module& critic() const { return gan.critic(); }
  GANTrainer& gan_trainer() const { return *trainer; }
};

}  // namespace halfgrad
