// Trains a DCGAN to make pictures of clothes like those of Fashion-MNIST, in mixed precision or in f32. After each epoch
// it draws a grid of what the generator makes of the same noise:
//
//   gan                    5 epochs; look at gan_samples/epoch_1.png, epoch_2.png, ...
//   gan --fp32             for comparison
//   gan --wgan             a Wasserstein GAN, whose critic has clamped weights

#include <filesystem>

#include "callbacks/gan/learner.h"
#include "callbacks/gan/models.h"
#include "callbacks/progress.h"
#include "callbacks/save_model.h"
#include "data/fashion_mnist.h"
#include "examples/image_grid.h"
#include "examples/options.h"
#include "optim/rmsprop.h"

using namespace halfgrad;

struct Settings : examples::CommonSettings {
  bool wgan = false, resume = false;
  std::string out = "gan_samples", checkpoint;
};

void declare_options(CLI::App& app, Settings& s) {
  examples::declare_common_options(app, s, "learning rate of both networks");
  app.add_flag("--wgan", s.wgan, "train a Wasserstein GAN, by clamping the critic's weights");
  app.add_option("--out", s.out, "folder of the pictures");
  CLI::Option* checkpoint = app.add_option("--checkpoint", s.checkpoint, "file to save the run to after each epoch");
  app.add_flag("--resume", s.resume, "go on with the run in the checkpoint")->needs(checkpoint);
}

constexpr std::int64_t kSize = 32, kNoise = 100, kFeatures = 32;

/// The images with a black border, so that their size can be halved three times, in [-1, 1] like the generator's.
data::Data load(const Settings& s) {
  return {.train = data::DataLoader(
              data::fashion_mnist_dataset(true, s.data, s.limit),
              {.batch_size = s.batch_size,
               .shuffle = true,
               .seed = s.seed,
               .transforms = {data::Pad{.pixels = (kSize - 28) / 2}, data::Normalize{.mean = {0.5f}, .std = {0.5f}},
                              data::NoiseToImage{.noise_sz = kNoise}}}),
          .valid = {}};
}

GANLearner make_learner(const Settings& s, nn::Module& generator, nn::Module& critic) {
  if (s.wgan) {
    const auto opt = optim::rmsprop({.lr = s.lr});
    return GANLearner::wgan(load(s), generator, critic, {.gen_opt = opt, .critic_opt = opt, .switch_eval = false});
  }
  const auto opt = optim::adam({.lr = s.lr, .beta1 = 0.5});
  return GANLearner(
      load(s), generator, critic, bce_gan_losses(),
      {.gen_opt = opt, .critic_opt = opt, .switcher = std::make_shared<FixedGANSwitcher>(), .switch_eval = false});
}

/// Draws what the generator makes of the same noise after each epoch.
class DrawSamples : public Callback {
 public:
  DrawSamples(GANLearner& gan, std::filesystem::path folder, const Tensor& noise)
      : gan_(gan), folder_(std::move(folder)), noise_(noise) {}
  void on_epoch_end(Learner& learn) override {
    const std::string name = fmt::format("epoch_{}.png", learn.state.epoch + 1);
    examples::save_image_grid(folder_ / name, gan_.generate(noise_), 8);
  }

 private:
  GANLearner& gan_;
  std::filesystem::path folder_;
  Tensor noise_;
};

void train(const Settings& s) {
  const Device device = examples::choose_device(s.device);
  std::filesystem::create_directories(s.out);
  const Tensor noise = randn({64, kNoise, 1, 1});
  nn::Sequential generator = basic_generator(kSize, 1, {.noise_sz = kNoise, .n_features = kFeatures});
  nn::Sequential critic = basic_critic(kSize, 1, {.n_features = kFeatures});
  generator.to(device);
  critic.to(device);
  GANLearner learn = make_learner(s, generator, critic);
  learn.add(std::make_shared<DrawSamples>(learn, s.out, noise));
  if (!s.checkpoint.empty())
    learn.add(
        std::make_shared<SaveModel>(SaveModelOptions{.path = s.checkpoint, .every = SaveModelOptions::Every::epoch}));
  if (!s.fp32) learn.to_fp16();
  if (s.resume) learn.resume(s.checkpoint);

  examples::print_choice(s.device, device);
  const double start = seconds_now();
  learn.fit(s.epochs);
  const double seconds = seconds_now() - start;

  const auto scaler = [&](std::size_t optimizer) {
    return learn.mixed_precision() ? learn.mixed_precision()->scaler(optimizer) : LossScaler{.scale = 1};
  };
  const LossScaler gen = scaler(GANTrainer::gen_optimizer), crit = scaler(GANTrainer::critic_optimizer);
  fmt::print("gen_loss={:.4f} critic_loss={:.4f} gen_scale={} critic_scale={} skipped={} seconds={:.1f}\n",
             learn.gan_trainer().gen_loss(), learn.gan_trainer().critic_loss(), gen.scale, crit.scale,
             gen.skipped + crit.skipped, seconds);
}

int main(int argc, char** argv) {
  Settings settings;
  settings.lr = 2e-4;
  settings.batch_size = 64;
  CLI::App app("Trains a DCGAN on Fashion-MNIST in mixed precision.", "gan");
  declare_options(app, settings);
  return examples::run(app, argc, argv, settings, [&] { train(settings); });
}
