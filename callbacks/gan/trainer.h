#pragma once
// GANTrainer: lets a Learner train the two networks of a GANModule in turns.

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "callbacks/callback.h"
#include "callbacks/gan/module.h"
#include "callbacks/metrics.h"

namespace halfgrad {

struct GANTrainerOptions {
  bool switch_eval = false;         ///< the network whose turn it is not is in eval mode
  std::optional<double> clip = {};  ///< keeps the critic's weights in [-clip, clip], as in a Wasserstein GAN
  double beta = 0.98;               ///< of the averages of the losses
  bool gen_first = false;           ///< a run begins with the generator
};

/// The batches of the Learner have the generator's input as input and real images as target. In generator mode a batch
/// is left as it is; in critic mode input and target change places, so that the model is given the real images. Only the
/// network whose turn it is requires gradients, and only its optimizer is active: each of the two has its own masters,
/// state and loss scale, which stay as they are during the turn of the other. Outside of runs the module is in generator
/// mode, and parameters require gradients as they did before.
class GANTrainer : public Callback {
 public:
  /// The numbers of the Learner's two optimizers.
  static constexpr std::size_t gen_optimizer = 0, critic_optimizer = 1;

  /// Keeps a reference to `gan`, which must be the Learner's model. Error when clip is not positive or beta is not in
  /// [0, 1).
  explicit GANTrainer(GANModule& gan, const GANTrainerOptions& options = {});

  bool gen_mode() const { return gan_.gen_mode; }
  /// From the next batch on; not within a step.
  void switch_to(Learner& learn, bool gen_mode);

  /// In the last run, after each batch of the generator, or of the critic: the average of its losses so far, recent ones
  /// weighing more.
  std::vector<double> gen_losses, critic_losses;
  /// The latest of them; NaN when there is none.
  double gen_loss() const;
  double critic_loss() const;
  /// "gen_loss" and "critic_loss" for LearnerOptions::metrics: columns of the epoch table, also without validation data.
  /// The trainer must live as long as they.
  std::vector<Metric> metrics() const;
  /// What the generator made in its last batch, without a graph; undefined when there was none. Not in checkpoints.
  const Tensor& last_gen() const { return last_gen_; }

  int order() const override { return -20; }
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_loss_known(Learner& learn, const KnownLoss& known) override;
  void on_backward_begin(Learner& learn) override;
  void on_step_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn, std::exception_ptr error) override;
  SavedState save_state() const override;
  void load_state(const SavedState& state) override;

 private:
  void clamp_critic(Learner& learn) const;

  GANModule& gan_;
  GANTrainerOptions options_;
  Smoother gen_smoother_, critic_smoother_;
  std::deque<bool> turns_;                    // of the batches whose loss is not known yet: the generator's or not
  Tensors gen_trainable_, critic_trainable_;  // in a run: what the user has not frozen
  Tensor last_gen_;
};

}  // namespace halfgrad
