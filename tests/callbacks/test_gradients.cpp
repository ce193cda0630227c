// GradientClipping and AccumulateScheduler.

#include "callbacks/gradients.h"

#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Its gradient is 3 for `a` and 4 for `b` with the loss sum(output).
struct Two : nn::Module {
  Tensor a = zeros({1}).requires_grad_(), b = zeros({1}).requires_grad_();
  Tensor forward(const Tensor& x) override { return x * (a * 3 + b * 4); }
  void visit(nn::Visitor& v) override {
    v.parameter("a", a);
    v.parameter("b", b);
  }
};

const LossFn sum_of_output = [](const Tensor& output, const Tensor&) { return sum(output); };
data::DataLoader one_item() {
  return data::DataLoader(data::TensorDataset(ones({1, 1}), zeros({1, 1})), {.batch_size = 1});
}

/// No batchnorm, whose statistics are of a batch.
nn::Sequential plain_mlp() {
  manual_seed(3);
  return nn::Sequential(nn::Linear(8, 32), nn::Tanh(), nn::Linear(32, 3));
}

data::Data batches_of(std::int64_t batch_size, std::int64_t items) {
  return {data::DataLoader(classes_dataset(items), {.batch_size = batch_size}), {}};
}

}  // namespace

TEST_CASE("GradientClipping bounds the true gradients, whatever the precision and the scale") {
  for (const std::optional<double> scale :
       {std::optional<double>(), std::optional<double>(1), std::optional<double>(4096)}) {
    Two model;
    Learner learn({one_item(), {}}, model, sum_of_output,
                  {.opt = optim::sgd({.lr = 1}), .callbacks = {std::make_shared<GradientClipping>(1)}, .silent = true});
    if (scale) learn.to_fp16({.loss_scale = *scale});
    learn.fit(1);
    CHECK(masters(learn)[0] == doctest::Approx(-0.6).epsilon(1e-5));
    CHECK(masters(learn)[1] == doctest::Approx(-0.8).epsilon(1e-5));
  }
  // A norm below the bound is left alone.
  Two model;
  Learner learn({one_item(), {}}, model, sum_of_output,
                {.opt = optim::sgd({.lr = 1}), .callbacks = {std::make_shared<GradientClipping>(6)}, .silent = true});
  learn.fit(1);
  CHECK(masters(learn) == std::vector<double>{-3, -4});
}

TEST_CASE("GradientClipping is the option clip of to_fp16, bit for bit, and the smaller bound counts") {
  const auto train = [](std::optional<double> callback, std::optional<double> option) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
    if (callback) learn.add(std::make_shared<GradientClipping>(*callback));
    learn.to_fp16({.loss_scale = 1000, .clip = option});
    learn.fit(3, 1e-2);
    return masters(learn);
  };
  const std::vector<double> clipped = train(0.1, {});
  CHECK(clipped == train({}, 0.1));
  CHECK(clipped != train({}, {}));
  CHECK(train(0.1, 5) == clipped);
  // With both, the second finds nothing left to clip but the 1e-6 in the clip factor.
  const std::vector<double> both = train(5, 0.1);
  for (std::size_t i = 0; i < both.size(); ++i) CHECK(both[i] == doctest::Approx(clipped[i]).epsilon(1e-4));
  for (const double bad : {0.0, -1.0, static_cast<double>(inf)}) CHECK_THROWS_AS(GradientClipping{bad}, Error);
}

TEST_CASE("four batches of 16 accumulated equal one of 64: to 1e-6 in f32, to rounding in f16") {
  for (const bool fp16 : {false, true})
    for (const auto& opt : {optim::sgd({.momentum = 0.9}), optim::adamw()})
      for (const std::optional<double> clip : {std::optional<double>(), std::optional<double>(0.2)}) {
        nn::Sequential large = plain_mlp(), small = plain_mlp();
        Learner one(batches_of(64, 192), large, nn::cross_entropy, {.opt = opt, .silent = true});
        Learner four(batches_of(16, 192), small, nn::cross_entropy,
                     {.opt = opt, .callbacks = {std::make_shared<AccumulateScheduler>(4)}, .silent = true});
        for (Learner* learn : {&one, &four}) {
          if (clip) learn->add(std::make_shared<GradientClipping>(*clip));
          if (fp16) learn->to_fp16();
          learn->fit(2, 1e-2);
        }
        CHECK(four.optimizer().groups()[0].entries[0].steps() == one.optimizer().groups()[0].entries[0].steps());
        const std::vector<double> a = masters(one), b = masters(four);
        double difference = 0, length = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
          difference += (a[i] - b[i]) * (a[i] - b[i]);
          length += a[i] * a[i];
        }
        // A half has 11 bits: each gradient is a sum of 4 rounded ones, and AdamW divides by their size, so that a
        // relative error of a few 2^-11 in a gradient moves a weight by that share of lr, in 6 steps.
        CHECK(std::sqrt(difference / length) < (fp16 ? 2e-3 : 1e-6));
        CHECK(difference > 0);  // they did go different ways
      }
}

TEST_CASE("a last step of fewer or shorter batches weighs each sample alike, or is dropped") {
  for (const bool drop_last : {false, true}) {
    // 5 batches of 16 and one of 4: steps of 64 and of 20 samples.
    nn::Sequential small = plain_mlp(), by_hand = plain_mlp();
    const data::Data data = batches_of(16, 84);
    Learner learn(data, small, nn::cross_entropy,
                  {.opt = optim::sgd({.lr = 0.1}),
                   .callbacks = {std::make_shared<AccumulateScheduler>(4, drop_last)},
                   .silent = true});
    learn.fit(1);
    CHECK(learn.optimizer().groups()[0].entries[0].steps() == (drop_last ? 1 : 2));
    for (const Tensor& p : small.parameters()) CHECK_FALSE(p.grad().defined());

    optim::SGD sgd(by_hand.parameters(), {.lr = 0.1});
    const data::TensorDataset all = classes_dataset(84);
    for (const auto& [from, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 64}, {64, 20}}) {
      if (drop_last && from > 0) break;
      nn::cross_entropy(by_hand(all.inputs()[0].narrow(0, from, count)), all.targets()[0].narrow(0, from, count))
          .backward();
      sgd.step();
      sgd.zero_grad();
    }
    const std::vector<double> a = weights(small), b = weights(by_hand);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 1e-6);
  }
  CHECK_THROWS_AS(AccumulateScheduler{0}, Error);
}

TEST_CASE("an overflow in one of the accumulated batches skips the step of all of them, and is gone with it") {
  nn::Sequential model = plain_mlp();
  Learner learn(
      batches_of(16, 128), model, nn::cross_entropy,
      {.callbacks = {std::make_shared<AccumulateScheduler>(4), std::make_shared<Overflow>(std::set<std::int64_t>{1})},
       .silent = true});
  learn.to_fp16();
  learn.fit(1);
  CHECK(learn.mixed_precision()->scaler().skipped == 1);
  CHECK(learn.mixed_precision()->scaler().noskip == 1);
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 1);
  for (const double w : masters(learn)) CHECK(std::isfinite(w));
}
