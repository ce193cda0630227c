#pragma once
// A small GAN for tests: from noise [4] to "images" [6], in batches of 8.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/gan/learner.h"
#include "checkpoints.h"

namespace halfgrad::test {

inline constexpr std::int64_t noise_sz = 4, image_sz = 6;

/// The images are all near 0.6.
inline data::TensorDataset gan_dataset(std::int64_t n, std::uint64_t seed = 1) {
  Generator generator(seed);
  std::vector<float> noise, images;
  for (std::int64_t i = 0; i < n * noise_sz; ++i) noise.push_back(static_cast<float>(2 * generator.next_uniform() - 1));
  for (std::int64_t i = 0; i < n * image_sz; ++i)
    images.push_back(static_cast<float>(0.5 + 0.2 * generator.next_uniform()));
  return data::TensorDataset(from_vector(noise, {n, noise_sz}), from_vector(images, {n, image_sz}));
}

/// Six training batches in an order of each epoch's own.
inline data::Data gan_data(bool with_validation = false) {
  data::Data data{.train = data::DataLoader(gan_dataset(48), {.batch_size = 8, .shuffle = true, .seed = 5}),
                  .valid = {}};
  if (with_validation) data.valid = data::DataLoader(gan_dataset(12, 2), {.batch_size = 8});
  return data;
}

// Dropout and batchnorm, so that modes and random numbers matter.
inline nn::Sequential small_generator(std::uint64_t seed = 3) {
  manual_seed(seed);
  return nn::Sequential{nn::Linear(noise_sz, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, image_sz),
                        nn::Tanh()};
}
inline nn::Sequential small_critic(std::uint64_t seed = 4) {
  manual_seed(seed);
  return nn::Sequential{nn::Linear(image_sz, 16), nn::BatchNorm1d(16), nn::LeakyReLU(0.2),
                        nn::Dropout(0.2),         nn::Linear(16, 1),   nn::Flatten(0)};
}

inline CallbackPtr fixed_switcher(std::int64_t n_crit, std::int64_t n_gen) {
  return std::make_shared<FixedGANSwitcher>(FixedGANSwitcherOptions{.n_crit = n_crit, .n_gen = n_gen});
}

/// Turns of one batch, silent.
inline GANLearnerOptions gan_options() {
  GANLearnerOptions options;
  options.switcher = fixed_switcher(1, 1);
  options.silent = true;
  return options;
}

struct SmallGAN {
  explicit SmallGAN(Precision precision = Precision::f32, const GANLearnerOptions& options = gan_options(),
                    const GANLosses& losses = bce_gan_losses(), bool with_validation = false, std::uint64_t seed = 3)
      : generator(small_generator(seed)),
        critic(small_critic(seed + 1)),
        learn(gan_data(with_validation), generator, critic, losses, options) {
    // max_noskip makes the scale move within a run.
    if (precision != Precision::f32) learn.to_fp16({.max_noskip = 4, .flat_master = precision == Precision::f16_flat});
  }
  optim::Optimizer& gen_opt() { return *learn.optimizers()[GANTrainer::gen_optimizer]; }
  optim::Optimizer& critic_opt() { return *learn.optimizers()[GANTrainer::critic_optimizer]; }
  LossScaler gen_scaler() { return learn.mixed_precision()->scaler(GANTrainer::gen_optimizer); }
  LossScaler critic_scaler() { return learn.mixed_precision()->scaler(GANTrainer::critic_optimizer); }

  nn::Sequential generator, critic;
  GANLearner learn;
};

inline constexpr Precision precisions[] = {Precision::f32, Precision::f16, Precision::f16_flat};

inline std::vector<double> masters_of(const optim::Optimizer& optimizer) {
  std::vector<double> all;
  for (const optim::ParamGroup& group : optimizer.groups())
    for (const optim::Entry& entry : group.entries)
      for (const double value : entry.master.to(f64).to_vector<double>()) all.push_back(value);
  return all;
}

/// Masters, moments and numbers of steps.
inline Outcome state_of(const optim::Optimizer& optimizer) {
  const SavedState state = optimizer.state_dict();
  Outcome all;
  for (const auto& [name, tensor] : state.tensors) all[name] = tensor.to_vector<double>();
  for (const auto& [name, number] : state.numbers) all[name] = {number};
  all["values"] = masters_of(optimizer);  // of those without a master too
  return all;
}

/// Calls functions at the events of training batches: `begin` once the batch is ready for the model, `end` when the step
/// is done and the turn not yet over.
struct AtBatch : Callback {
  std::function<void(Learner&)> begin, end;
  void on_loss_begin(Learner& learn) override {
    if (learn.state.train && begin) begin(learn);
  }
  void on_step_end(Learner& learn) override {
    if (end) end(learn);
  }
};

}  // namespace halfgrad::test
