// Trains a classifier of Fashion-MNIST, in mixed precision or in f32, and can leave out parts of the scheme
// to show what they are for:
//
//   fashion_mnist                                      the whole scheme, 5 epochs
//   fashion_mnist --fp32                               for comparison
//   fashion_mnist --no-masters --lr 3e-6               small updates are rounded away
//   fashion_mnist --loss-factor 1e-5 --no-loss-scaling small gradients are flushed to zero

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "callbacks/learner.h"
#include "callbacks/progress.h"
#include "data/fashion_mnist.h"
#include "engine/cpu/parallel.h"
#include "engine/random.h"
#include "examples/models.h"

using namespace halfgrad;

struct Settings {
  std::string model = "cnn", device = "auto", loss_scale = "dynamic", data;
  bool fp16 = true, fp32 = false, flat_master = false, augment = false, no_masters = false, no_loss_scaling = false;
  int epochs = 5, threads = 0;
  double lr = 3e-3, clip = 0, loss_factor = 1;
  std::int64_t batch_size = 128, limit = 0;
  std::uint64_t seed = 0;
};

// CLI11's own validators spell out the largest double in their messages.
CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return good ? std::string() : fmt::format("'{}' is not a number from {} to {}", text, low, high);
      },
      "");
}

void declare_options(CLI::App& app, Settings& s) {
  app.add_option("--model", s.model, "mlp, cnn or resnet")->check(CLI::IsMember({"mlp", "cnn", "resnet"}));
  app.add_option("--epochs", s.epochs, "times through the data")->check(between(1, 1e6));
  app.add_option("--lr", s.lr, "highest learning rate of the one-cycle schedule")->check(between(1e-30, 1e30));
  app.add_option("--batch-size", s.batch_size, "images per step")->check(between(1, 8192));
  app.add_option("--seed", s.seed, "of weights, order, dropout and augmentation")->check(between(0, 1e18));
  app.add_option("--data", s.data, "folder of the four IDX files (default: Debian's dataset-fashion-mnist)");
  app.add_option("--limit", s.limit, "use only so many training and validation images")->check(between(1, 60000));
  app.add_flag("--augment", s.augment, "shift and mirror the training images");
  app.add_option("--device", s.device, "cpu, cuda or auto")->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--threads", s.threads, "CPU threads")->check(between(1, 1024));
  app.add_option("--loss-factor", s.loss_factor, "multiply the loss, to make its gradients small")
      ->check(between(1e-30, 1e30));

  CLI::Option* fp16 = app.add_flag("--fp16", s.fp16, "mixed precision (default)");
  CLI::Option* fp32 = app.add_flag("--fp32", s.fp32, "plain f32 training")->excludes(fp16);
  CLI::Option* scale =
      app.add_option("--loss-scale", s.loss_scale, "a number, which stays, or dynamic")->excludes(fp32);
  app.add_flag("--no-loss-scaling", s.no_loss_scaling, "keep the loss as it is")->excludes(fp32)->excludes(scale);
  app.add_flag("--no-masters", s.no_masters, "update the f16 weights themselves")->excludes(fp32);
  app.add_flag("--flat-master", s.flat_master, "all masters in one vector")->excludes(fp32);
  app.add_option("--clip", s.clip, "largest norm of the gradients")->check(between(1e-30, 1e30))->excludes(fp32);
  for (CLI::Option* option : app.get_options())
    if (option->get_expected() > 0) option->capture_default_str();
}

MixedPrecisionOptions precision_options(const Settings& s) {
  MixedPrecisionOptions options{.flat_master = s.flat_master, .masters = !s.no_masters};
  if (s.clip > 0) options.clip = s.clip;
  if (s.no_loss_scaling) {
    options.loss_scale = 1;
    options.dynamic = false;
  } else if (s.loss_scale != "dynamic") {
    double scale = 0;
    check(CLI::detail::lexical_cast(s.loss_scale, scale), "--loss-scale: '{}' is neither a number nor dynamic",
          s.loss_scale);
    options.loss_scale = scale;
    options.dynamic = false;
  }
  return options;
}

Device choose_device(const std::string& name) {
  if (name != "auto") return parse_device(name);
  try {
    backend_for(Device::cuda());
    return Device::cuda();
  } catch (const Error&) {
    return Device::cpu();
  }
}

void train(const Settings& s) {
  if (s.threads > 0) cpu::set_num_threads(s.threads);
  manual_seed(s.seed);
  const Device device = choose_device(s.device);
  const data::Data data = data::fashion_mnist({.batch_size = s.batch_size,
                                               .dir = s.data,
                                               .seed = s.seed,
                                               .augment = s.augment,
                                               .train_limit = s.limit,
                                               .valid_limit = s.limit});
  nn::Sequential model = models::make(s.model);
  model.to(device);
  const auto loss = [&](const Tensor& output, const Tensor& target) {
    const Tensor loss = nn::cross_entropy(output, target);
    return s.loss_factor == 1 ? loss : loss * s.loss_factor;
  };
  Learner learn(data, model, loss, {.opt = optim::adamw(), .metrics = {accuracy}});
  if (!s.fp32) learn.to_fp16(precision_options(s));

  const double start = seconds_now();
  learn.fit_one_cycle(s.epochs, s.lr);
  const double seconds = seconds_now() - start;

  const std::vector<double>& result = learn.state.last_metrics;
  check(std::isfinite(result[0]), "the validation loss is {}: training has failed; try a smaller --lr", result[0]);
  const LossScaler scaler = learn.mixed_precision() ? learn.mixed_precision()->scaler() : LossScaler{.scale = 1};
  fmt::print("accuracy={:.4f} valid_loss={:.4f} loss_scale={} skipped={} seconds={:.1f}\n", result[1],
             result[0] / s.loss_factor, scaler.scale, scaler.skipped, seconds);
}

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a classifier of Fashion-MNIST in mixed precision.");
  declare_options(app, settings);
  try {
    app.parse(argc, argv);
    train(settings);
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fashion_mnist: {}\n", error.what());
    return 1;
  }
}
