// Trains a classifier of Fashion-MNIST, in mixed precision or in f32, and can leave out parts of the scheme
// to show what they are for:
//
//   fashion_mnist                                      the whole scheme, 5 epochs
//   fashion_mnist --fp32                               for comparison
//   fashion_mnist --no-masters --lr 3e-6               small updates are rounded away
//   fashion_mnist --loss-factor 1e-5 --no-loss-scaling small gradients are flushed to zero

#include <cmath>

#include "callbacks/learner.h"
#include "callbacks/progress.h"
#include "data/fashion_mnist.h"
#include "examples/models.h"
#include "examples/options.h"

using namespace halfgrad;
using examples::between;

struct Settings : examples::CommonSettings {
  std::string model = "cnn", loss_scale = "dynamic";
  bool flat_master = false, augment = false, no_masters = false, no_loss_scaling = false;
  double clip = 0, loss_factor = 1;
};

void declare_options(CLI::App& app, Settings& s) {
  app.add_option("--model", s.model, "mlp, cnn or resnet")->check(CLI::IsMember({"mlp", "cnn", "resnet"}));
  examples::declare_common_options(app, s, "highest learning rate of the one-cycle schedule");
  app.add_flag("--augment", s.augment, "shift and mirror the training images");
  app.add_option("--loss-factor", s.loss_factor, "multiply the loss, to make its gradients small")
      ->check(between(1e-30, 1e30));

  CLI::Option* fp32 = app.get_option("--fp32");
  CLI::Option* scale =
      app.add_option("--loss-scale", s.loss_scale, "a number, which stays, or dynamic")->excludes(fp32);
  app.add_flag("--no-loss-scaling", s.no_loss_scaling, "keep the loss as it is")->excludes(fp32)->excludes(scale);
  app.add_flag("--no-masters", s.no_masters, "update the f16 weights themselves")->excludes(fp32);
  app.add_flag("--flat-master", s.flat_master, "all masters in one vector")->excludes(fp32);
  app.add_option("--clip", s.clip, "largest norm of the gradients")->check(between(1e-30, 1e30))->excludes(fp32);
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

void train(const Settings& s) {
  const Device device = examples::choose_device(s.device);
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

  examples::print_choice(s.device, device);
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
  settings.lr = 3e-3;
  settings.batch_size = 128;
  CLI::App app("Trains a classifier of Fashion-MNIST in mixed precision.", "fashion_mnist");
  declare_options(app, settings);
  return examples::run(app, argc, argv, settings, [&] { train(settings); });
}
