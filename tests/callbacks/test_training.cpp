// Whole runs: same bits in every layout and with any number of threads, no memory from the system, and what
// goes wrong without the parts of the scheme.

#include "engine/cpu/parallel.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Everything that a small image classifier is made of, or the layers of a perceptron.
nn::Sequential make_model(bool convolutional) {
  manual_seed(11);
  if (convolutional)
    return nn::Sequential(nn::Conv2d(1, 8, 3, {.padding = 1}), nn::BatchNorm2d(8), nn::ReLU(), nn::MaxPool2d(2),
                          nn::Conv2d(8, 16, 3), nn::BatchNorm2d(16), nn::ReLU(), nn::AvgPool2d(2), nn::Flatten(),
                          nn::Linear(16, 32), nn::ReLU(), nn::Dropout(0.25), nn::Linear(32, 4));
  return nn::Sequential(nn::Linear(64, 64), nn::BatchNorm1d(64), nn::ReLU(), nn::Dropout(0.25), nn::Linear(64, 32),
                        nn::Tanh(), nn::Linear(32, 4));
}

/// 200 steps of a network with dropout; returns the masters.
std::vector<double> train_200_steps(const std::optional<MixedPrecisionOptions>& precision,
                                    const optim::OptimizerFactory& opt, bool convolutional = false) {
  nn::Sequential model = make_model(convolutional);
  data::TensorDataset dataset = classes_dataset(256, 64, 4);
  if (convolutional) dataset = data::TensorDataset(dataset.inputs()[0].view({256, 1, 8, 8}), dataset.targets()[0]);
  data::DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .seed = 2});
  Learner learn({loader, {}}, model, nn::cross_entropy, {.opt = opt, .silent = true});
  if (precision) learn.to_fp16(*precision);
  learn.fit_one_cycle(50, 5e-3);
  CHECK(learn.state.iteration == 200);
  // The same weights would also come of a run that does nothing: the loss must fall, of the convolutions more slowly.
  CHECK(learn.recorder().losses.back() < (convolutional ? 0.7 : 0.5) * learn.recorder().losses.front());
  return masters(learn);
}

struct OneWeight : nn::Module {
  Tensor weight = ones({1}).requires_grad_();
  Tensor forward(const Tensor& x) override { return x * weight; }
  void visit(nn::Visitor& v) override { v.parameter("weight", weight); }
};

/// Where the weight 1 is after 100 steps of plain SGD along a gradient.
double weight_after_100_steps(double gradient, double lr, const MixedPrecisionOptions& options) {
  OneWeight model;
  const data::DataLoader loader(data::TensorDataset(ones({100, 1}), zeros({100, 1})), {.batch_size = 1});
  Learner learn({loader, {}}, model, [=](const Tensor& output, const Tensor&) { return sum(output) * gradient; },
                {.opt = optim::sgd({.lr = lr}), .silent = true});
  learn.to_fp16(options);
  learn.fit(1);
  return model.weight.item();
}

}  // namespace

TEST_CASE("flat masters give the bits of separate ones after 200 steps") {
  for (const bool convolutional : {false, true})
    for (const auto& opt : {optim::adamw(), optim::sgd({.momentum = 0.9})})
      CHECK(train_200_steps(MixedPrecisionOptions{.clip = 1, .flat_master = false}, opt, convolutional) ==
            train_200_steps(MixedPrecisionOptions{.clip = 1, .flat_master = true}, opt, convolutional));
}

TEST_CASE("two threads give the bits of one after 200 steps") {
  const int threads = cpu::num_threads();
  for (const bool convolutional : {false, true})
    for (const std::optional<MixedPrecisionOptions>& precision :
         {std::optional<MixedPrecisionOptions>(),
          std::optional<MixedPrecisionOptions>(MixedPrecisionOptions{.clip = 1})}) {
      cpu::set_num_threads(1);
      const std::vector<double> one = train_200_steps(precision, optim::adamw(), convolutional);
      cpu::set_num_threads(2);
      CHECK(train_200_steps(precision, optim::adamw(), convolutional) == one);
    }
  cpu::set_num_threads(threads);
}

TEST_CASE("once warm, a step asks the system for no memory") {
  const data::LoaderOptions batches_of_64{.batch_size = 64, .shuffle = true, .prefetch = 0};
  const data::Data data{data::DataLoader(classes_dataset(512, 784, 10), batches_of_64),
                        data::DataLoader(classes_dataset(128, 784, 10, 2), batches_of_64)};
  for (const bool fp16 : {false, true})
    for (const bool flat : {false, true}) {
      nn::Sequential model(nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 128), nn::ReLU(), nn::Linear(128, 10));
      Learner learn(data, model, nn::cross_entropy, {.metrics = {accuracy}, .silent = true});
      if (fp16) learn.to_fp16({.clip = 1, .flat_master = flat});
      learn.fit(2);
      const std::uint64_t warm = memory_stats().system_calls;
      learn.fit(5);
      CHECK(memory_stats().system_calls == warm);
    }
}

TEST_CASE("without masters, updates below half a unit in the last place are lost") {
  // Halves near 1 are 2^-11 apart below it: an update of 1e-4 is less than half of that.
  CHECK(weight_after_100_steps(1, 1e-4, {}) == doctest::Approx(0.99).epsilon(1e-3));
  CHECK(weight_after_100_steps(1, 1e-4, {.masters = false}) == 1);
  CHECK(weight_after_100_steps(1, 1e-2, {.masters = false}) < 0.1);  // large ones arrive
}

TEST_CASE("without loss scaling, gradients below 2^-25 are flushed to zero") {
  const MixedPrecisionOptions unscaled{.loss_scale = 1, .dynamic = false};
  CHECK(weight_after_100_steps(1e-8, 1e6, {}) == doctest::Approx(0).epsilon(1e-3));
  CHECK(weight_after_100_steps(1e-8, 1e6, unscaled) == 1);
  CHECK(weight_after_100_steps(1e-3, 1, unscaled) == doctest::Approx(0.9).epsilon(1e-3));  // large ones arrive
}

TEST_CASE("f16 training ends where f32 training does") {
  const auto f32_weights = train_200_steps({}, optim::adamw());
  const auto f16_weights = train_200_steps(MixedPrecisionOptions{}, optim::adamw());
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < f32_weights.size(); ++i) {
    distance += std::pow(f32_weights[i] - f16_weights[i], 2);
    length += std::pow(f32_weights[i], 2);
  }
  CHECK(std::sqrt(distance / length) < 0.1);
}
