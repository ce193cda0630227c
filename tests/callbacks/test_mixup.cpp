// MixUp and the Beta distribution that it draws from.

#include "callbacks/mixup.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// What the model got and gave, and what the loss compared it with, batch after batch.
struct Seen : Callback {
  Tensors inputs, outputs, targets;
  std::vector<double> losses;
  int order() const override { return 10; }
  void on_batch_begin(Learner& learn) override { inputs.push_back(learn.state.last_input[0]); }
  void on_loss_begin(Learner& learn) override {
    outputs.push_back(learn.state.last_output.detach());
    targets.push_back(learn.state.last_target[0]);
  }
  void on_batch_end(Learner& learn) override { losses.push_back(learn.state.last_loss.item()); }
};

/// The numbers that MixUp draws for a batch of n samples, in its order: lambda, and who is mixed in.
struct Draws {
  std::vector<double> lambda;
  std::vector<std::int64_t> others;
  Draws(std::int64_t n, double alpha, Generator& generator) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = random_beta(alpha, alpha, generator);
      lambda.push_back(std::max(x, 1 - x));
    }
    others = random_permutation(n, generator);
  }
};

/// lambda * x + (1 - lambda) * x[others] by hand.
std::vector<double> mixed(const Tensor& x, const Draws& draws) {
  const std::vector<double> v = x.to_vector<double>();
  const std::size_t n = draws.lambda.size(), width = v.size() / n;
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < width; ++j)
      result.push_back(draws.lambda[i] * v[i * width + j] +
                       (1 - draws.lambda[i]) * v[static_cast<std::size_t>(draws.others[i]) * width + j]);
  return result;
}

/// Within a relative error of a few roundings to f32 (or f16, where that is what was rounded to).
void check_close(const Tensor& actual, const std::vector<double>& expected, double tolerance = 1e-6) {
  const std::vector<double> values = actual.to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - expected[i]) <= tolerance * 2);
}

data::Data one_batch(const Tensor& x, const Tensor& y) {
  const data::DataLoader loader(data::TensorDataset(x, y), {.batch_size = x.size(0), .prefetch = 0});
  return {loader, loader};
}

/// One 1x1 convolution: scores for each pixel.
struct PerPixel : nn::Module {
  nn::Conv2d conv{2, 3, 1};
  Tensor forward(const Tensor& x) override { return conv(x); }
  void visit(nn::Visitor& v) override { v.module("conv", conv); }
};

}  // namespace

TEST_CASE("random_beta has the mean, the variance and the distribution of Beta") {
  Generator generator(5);
  constexpr int n = 20000;
  for (const auto& [a, b] : std::vector<std::pair<double, double>>{{0.01, 0.01}, {0.4, 0.4}, {1, 1}, {7, 7}, {2, 5}}) {
    double sum = 0, squares = 0;
    bool inside = true;
    for (int i = 0; i < n; ++i) {
      const double x = random_beta(a, b, generator);
      inside = inside && x >= 0 && x <= 1;
      sum += x;
      squares += x * x;
    }
    CHECK(inside);
    const double mean = a / (a + b), variance = a * b / ((a + b) * (a + b) * (a + b + 1));
    // Five standard errors: of the mean sqrt(variance / n), of the second moment at most sqrt(1/4 / n).
    CHECK(std::abs(sum / n - mean) < 5 * std::sqrt(variance / n));
    CHECK(std::abs(squares / n - (variance + mean * mean)) < 5 * std::sqrt(0.25 / n));
  }
  int below = 0;  // Beta(1/2, 1/2): P(x < 1/4) = 2/pi * asin(1/2) = 1/3
  for (int i = 0; i < n; ++i) below += random_beta(0.5, 0.5, generator) < 0.25;
  CHECK(std::abs(below / double(n) - 1.0 / 3) < 5 * std::sqrt(2.0 / 9 / n));
  const double tiny = random_beta(1e-300, 1e-300, generator);
  CHECK((tiny == 0 || tiny == 1));
  CHECK_THROWS_AS(random_beta(0, 1), Error);
  CHECK_THROWS_AS(random_beta(1, -1), Error);
  CHECK_THROWS_AS(random_beta(NAN, 1), Error);
  CHECK_THROWS_AS(random_beta(1, inf), Error);
}

TEST_CASE("inputs and classes are mixed by the same shares, and the loss is the mixture of both losses") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    const auto seen = std::make_shared<Seen>();
    data::Data data = small_data();
    Learner learn(data, model, nn::cross_entropy,
                  {.metrics = {accuracy}, .callbacks = {std::make_shared<MixUp>(), seen}, .silent = true});
    if (fp16) learn.to_fp16();
    manual_seed(9);
    learn.fit(1);
    Generator generator(9);
    std::size_t batch = 0;
    for (const data::Batch& plain : data.train) {
      const Draws draws(16, 0.4, generator);
      check_close(seen->inputs[batch], mixed(plain.inputs[0], draws));
      const Tensor& y = plain.targets[0];
      check_close(seen->targets[batch], mixed(cast(one_hot(y, 3), f64), draws));
      const nn::CrossEntropyLoss each({.reduction = Reduction::none});
      const Tensor output = cast(seen->outputs[batch], f32);
      const std::vector<double> own = each(output, y).to_vector<double>();
      const std::vector<double> other = each(output, index_select(y, 0, from_vector(draws.others))).to_vector<double>();
      double loss = 0;
      for (std::size_t i = 0; i < 16; ++i) loss += (draws.lambda[i] * own[i] + (1 - draws.lambda[i]) * other[i]) / 16;
      CHECK(seen->losses[batch] == doctest::Approx(loss).epsilon(1e-5));
      ++batch;
    }
    CHECK(batch == 3);
    CHECK(seen->targets[0].dtype() == f32);
    // Validation is as it was, and has drawn nothing.
    REQUIRE(seen->inputs.size() == 5);
    const data::Batch valid = *data.valid.begin();
    CHECK(seen->inputs[3].to_vector<float>() == valid.inputs[0].to_vector<float>());
    CHECK(seen->targets[3].to_vector<std::int64_t>() == valid.targets[0].to_vector<std::int64_t>());
    CHECK(default_generator().state() == generator.state());
  }
}

TEST_CASE("MixUp trains, alpha near 0 hardly mixes, and the same seed gives the same bits") {
  const auto train = [](double alpha, bool fp16, std::uint64_t seed) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.callbacks = {std::make_shared<MixUp>(MixUpOptions{.alpha = alpha})}, .silent = true});
    if (fp16) learn.to_fp16();
    manual_seed(seed);
    learn.fit(10, 1e-2);
    CHECK(learn.recorder().epochs.back().metrics[0] < 0.7 * learn.recorder().epochs.front().metrics[0]);
    return weights(model);
  };
  for (const bool fp16 : {false, true}) {
    CHECK(train(0.4, fp16, 1) == train(0.4, fp16, 1));
    CHECK(train(0.4, fp16, 1) != train(0.4, fp16, 2));
  }
  // Not with Adam: the gradient of the bias before the batchnorm is rounding alone, which Adam takes for a direction. (The
  // losses of classes and of probabilities are rounded differently.)
  const auto train_by_sgd = [](std::vector<CallbackPtr> callbacks) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.opt = momentum_sgd(), .callbacks = std::move(callbacks), .silent = true});
    learn.fit(10, 5e-2);
    return weights(model);
  };
  const std::vector<double> expected = train_by_sgd({}),
                            hardly = train_by_sgd({std::make_shared<MixUp>(MixUpOptions{.alpha = 1e-300})});
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(hardly[i] == doctest::Approx(expected[i]).epsilon(1e-3));
}

TEST_CASE("floating targets are mixed themselves, f16 inputs are rounded once, pixels have classes too") {
  struct Case {
    Tensor x, y;
    double tolerance;
  };
  manual_seed(2);
  for (const Case& c : {Case{randn({5, 4}), randn({5, 2}), 1e-6}, Case{randn({5, 4}, f64), randn({5}, f64), 1e-6},
                        Case{randn({5, 4}, f16), rand({5, 2}, f16), 1e-3}}) {
    nn::Sequential model(nn::Linear(4, 2));
    model.to(c.x.dtype());
    const auto seen = std::make_shared<Seen>();
    const LossFn loss = [](const Tensor& output, const Tensor& target) {
      return mean(square(output.narrow(0, 0, target.size(0)) - mean(target)));
    };
    Learner learn(one_batch(c.x, c.y), model, loss,
                  {.callbacks = {std::make_shared<MixUp>(MixUpOptions{.alpha = 1}), seen}, .silent = true});
    Generator generator = default_generator();
    learn.fit(1);
    const Draws draws(5, 1, generator);
    CHECK(seen->inputs[0].dtype() == c.x.dtype());
    CHECK(seen->targets[0].dtype() == c.y.dtype());
    check_close(seen->inputs[0], mixed(c.x, draws), c.tolerance);
    check_close(seen->targets[0], mixed(c.y, draws), c.tolerance);
  }

  PerPixel model;
  const auto seen = std::make_shared<Seen>();
  const Tensor x = randn({4, 2, 3, 5}), y = randint(0, 3, {4, 3, 5});
  Learner learn(one_batch(x, y), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<MixUp>(), seen}, .silent = true});
  Generator generator = default_generator();
  learn.fit(1);
  const Draws draws(4, 0.4, generator);
  check_close(seen->inputs[0], mixed(x, draws));
  check_close(seen->targets[0], mixed(cast(one_hot(y, 3).permute({0, 3, 1, 2}), f32), draws));
}

TEST_CASE("what cannot be mixed is an error") {
  const auto message = [](const Tensor& x, const Tensor& y) {
    nn::Sequential model(nn::Linear(2, 3));
    const LossFn loss = [](const Tensor& output, const Tensor&) { return mean(output); };
    Learner learn(one_batch(x, y), model, loss, {.callbacks = {std::make_shared<MixUp>()}, .silent = true});
    return message_of([&] { learn.fit(1); });
  };
  CHECK(contains(message(zeros({4, 2}, i64), zeros({4}, i64)), "MixUp: input 0 is i64"));
  CHECK(contains(message(zeros({4, 2}), zeros({4}, i32)), "MixUp: the target is i32"));
  CHECK(contains(message(zeros({4, 2}), zeros({4, 3}, i64)), "expected class indices i64 [N, *]"));
  CHECK(contains(message(zeros({4, 2}), full({4}, 3, i64)), "one_hot"));
  CHECK(message(zeros({4, 2}), zeros({4}, i64)).empty());
  CHECK_THROWS_WITH_AS(MixUp({.alpha = 0}), doctest::Contains("alpha 0 must be a positive number"), Error);
  CHECK_THROWS_AS(MixUp({.alpha = NAN}), Error);
}
