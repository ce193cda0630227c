// Where we differ from fastai v1: a test for each row of that table, named after what halfgrad does. Most of them have
// longer tests of their own elsewhere; here it shows if one of the faults comes back.

#include "callbacks/gradients.h"
#include "engine/io/safetensors.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "gan.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

TEST_CASE("a skipped step changes nothing at all but the scale and its counters") {
  for (const bool flat : {false, true})
    for (const auto& opt : {optim::adamw({.lr = 1e-2}), momentum_sgd()}) {
      nn::Sequential model = small_mlp();
      Learner learn(small_data(), model, nn::cross_entropy, {.opt = opt, .silent = true});
      learn.to_fp16({.flat_master = flat});
      for (const bool first : {true, false}) {
        const auto overflow = std::make_shared<Overflow>(std::set<std::int64_t>{0, 1, 2});
        if (!first) learn.fit(1);
        const std::vector<double> parameters_before = masters(learn), state_before = state_values(learn);
        learn.add(overflow);
        learn.fit(1);
        learn.remove(overflow);
        CHECK(masters(learn) == parameters_before);
        CHECK(state_values(learn) == state_before);
        for (const Tensor& p : model.parameters()) CHECK_FALSE(p.grad().defined());
      }
      CHECK(learn.mixed_precision()->scaler().scale == 65536 / 64);
    }
}

TEST_CASE("flat masters: a parameter without gradient is left alone, and nothing is read before it is written") {
  struct Unused : nn::Module {
    nn::Linear used{8, 3}, unused{8, 3};
    Tensor forward(const Tensor& x) override { return used(x); }
    void visit(nn::Visitor& v) override {
      v.module("unused", unused);
      v.module("used", used);
    }
  };
  for (const bool flat : {false, true}) {
    manual_seed(1);
    Unused model;
    Learner learn(small_data(), model, nn::cross_entropy, {.opt = optim::adamw({.weight_decay = 0.5}), .silent = true});
    learn.to_fp16({.flat_master = flat});
    const std::vector<double> unused = model.unused.weight.to_vector<double>(),
                              used = model.used.weight.to_vector<double>();
    learn.fit(2, 1e-2);
    CHECK(model.unused.weight.to_vector<double>() == unused);
    CHECK(model.used.weight.to_vector<double>() != used);
  }
}

TEST_CASE("flat masters: an overflow on the first step leaves weights and state as they were") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<Overflow>(std::set<std::int64_t>{0, 1, 2})}, .silent = true});
  learn.to_fp16({.flat_master = true});
  const std::vector<double> before = masters(learn);
  learn.fit(1);
  CHECK(masters(learn) == before);
  CHECK(learn.optimizer().state_dict().numbers.at("0.steps") == 0);
}

TEST_CASE("a non-finite gradient never reaches a weight, in any mode") {
  for (const bool dynamic : {false, true})
    for (const double scale : {1.0, 4.0, 512.0})
      for (const bool flat : {false, true})
        for (const float bad : {inf, -inf, NAN}) {
          struct Poison : Callback {
            float value;
            void on_backward_end(Learner& learn) override {
              Tensor grad = learn.optimizer().groups()[0].entries[0].param.grad();
              grad.flatten().narrow(0, 3, 1).fill_(value);
            }
          };
          const auto poison = std::make_shared<Poison>();
          poison->value = bad;
          nn::Sequential model = small_mlp();
          Learner learn(small_data(), model, nn::cross_entropy,
                        {.opt = momentum_sgd(), .callbacks = {poison}, .silent = true});
          learn.to_fp16({.loss_scale = scale, .dynamic = dynamic, .flat_master = flat});
          const std::vector<double> before = masters(learn), state = state_values(learn);
          learn.fit(3);
          CHECK(masters(learn) == before);
          CHECK(learn.mixed_precision()->scaler().skipped == 9);
        }
}

TEST_CASE("the scale stays in [min_scale, max_scale]") {
  nn::Sequential model = small_mlp();
  const auto overflow = std::make_shared<Overflow>(std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {overflow}, .silent = true});
  learn.to_fp16({.loss_scale = 8, .max_noskip = 1, .max_scale = 24});
  learn.fit(3);
  CHECK(learn.mixed_precision()->scaler().scale == 1);
  learn.remove(overflow);
  learn.fit(3);
  CHECK(learn.mixed_precision()->scaler().scale == 24);
}

TEST_CASE("after 50 skips in a row at the floor training stops with an error that names tensor and layer") {
  nn::Sequential model = small_mlp();
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < 300; ++i) all.insert(i);
  Learner learn(small_data(), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<Overflow>(all)}, .silent = true});
  learn.to_fp16({.loss_scale = 1});
  const std::string message = message_of([&] { learn.fit(100); });
  CHECK(learn.state.iteration == 49);
  CHECK(contains(message, "50 steps in a row"));
  CHECK(contains(message, "the gradient of 'bias' of layer '3' (Linear)"));
}

TEST_CASE("masters and optimizer state persist: two fits are one, validate() in between or not") {
  for (const bool flat : {false, true}) {
    nn::Sequential once = small_mlp(), twice = small_mlp();
    Learner one(small_data(), once, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
    Learner two(small_data(), twice, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
    one.to_fp16({.max_noskip = 4, .flat_master = flat}).fit(4);
    two.to_fp16({.max_noskip = 4, .flat_master = flat}).fit(1);
    const Tensor master = two.optimizer().groups()[0].entries[0].master;
    two.validate();
    two.fit(2);
    CHECK(two.optimizer().groups()[0].entries[0].master.is_same(master));
    two.fit(1);
    CHECK(weights(once) == weights(twice));
    CHECK(state_values(one) == state_values(two));
    CHECK(one.mixed_precision()->scaler() == two.mixed_precision()->scaler());
    CHECK(masters(two) != weights(twice));  // they hold more than the f16 weights
  }
}

TEST_CASE("to_fp16().fit().to_fp32().fit() trains") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
  learn.to_fp16().fit(2);
  const std::vector<double> in_between = masters(learn);
  learn.to_fp32().fit(2);
  CHECK(model.dtype() == f32);
  CHECK(masters(learn) != in_between);
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 12);
}

TEST_CASE("accumulation keeps the gradients until the step, and checks, unscales and clips once per real step") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(8), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<AccumulateScheduler>(3)}, .silent = true});
  learn.to_fp16({.clip = 0.5});
  learn.fit(2);  // 12 batches; test_gradients.cpp compares them with large ones
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 4);
  CHECK(learn.mixed_precision()->scaler().noskip == 4);
}

TEST_CASE("GradientClipping clips true, unscaled f32 gradients, in the same place as `clip`") {
  const auto train = [](bool callback) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
    if (callback) learn.add(std::make_shared<GradientClipping>(0.1));
    learn.to_fp16({.clip = callback ? std::optional<double>() : 0.1});
    learn.fit(2);
    return masters(learn);
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("clip bounds the global L2 norm, clip_per_group that of each group") {
  // The gradient of weight i is the target; SGD with lr 1 and no momentum moves the weights by what is left
  // of it.
  struct Two : nn::Module {
    Tensor a = zeros({1}).requires_grad_(), b = zeros({1}).requires_grad_();
    Tensor forward(const Tensor& x) override { return x * (a * 3 + b * 4); }
    void visit(nn::Visitor& v) override {
      v.parameter("a", a);
      v.parameter("b", b);
    }
  };
  data::DataLoader loader(data::TensorDataset(ones({1, 1}), zeros({1, 1})), {.batch_size = 1});
  for (const bool per_group : {false, true}) {
    Two model;
    Learner learn({loader, {}}, model, [](const Tensor& output, const Tensor&) { return sum(output); },
                  {.opt = optim::sgd({.lr = 1}), .silent = true});
    learn.optimizer().regroup({{.params = {model.a}}, {.params = {model.b}}});
    learn.to_fp16({.loss_scale = 1024, .clip = 1, .clip_per_group = per_group});
    learn.fit(1);
    const std::vector<double> moved = masters(learn);
    CHECK(moved[0] == doctest::Approx(per_group ? -1.0 : -0.6).epsilon(1e-5));
    CHECK(moved[1] == doctest::Approx(per_group ? -1.0 : -0.8).epsilon(1e-5));
  }
}

TEST_CASE("recorded losses and last_loss are never scaled") {
  struct Watch : Callback {
    std::vector<double> losses;
    void on_batch_end(Learner& learn) override {
      if (learn.state.train) losses.push_back(learn.state.last_loss.item());
    }
  };
  const auto watch = std::make_shared<Watch>();
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {watch}, .silent = true});
  learn.to_fp16();
  learn.fit(2);
  CHECK(learn.recorder().losses == watch->losses);
  for (const double loss : watch->losses) CHECK(loss < 3);  // times 65536 if it were scaled
  CHECK(learn.state.smooth_loss < 3);
}

TEST_CASE("a checkpoint holds masters, moments, scale, noskip, step counts, schedule and random numbers") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  struct Save : Callback {
    std::string path;
    void on_epoch_end(Learner& learn) override {
      if (learn.state.epoch == 0) learn.save(path);
    }
  };
  const auto save = std::make_shared<Save>();
  save->path = path;
  nn::Sequential a = small_mlp(), b = small_mlp(99);
  Learner saved(small_data(), a, nn::cross_entropy, {.callbacks = {save}, .silent = true});
  Learner resumed(small_data(), b, nn::cross_entropy, {.silent = true});
  saved.to_fp16({.max_noskip = 2}).fit_one_cycle(2, 1e-2);
  const SafetensorsFile file = load_safetensors(path);
  CHECK(file.tensors.at("0.weight").dtype() == f16);
  CHECK(file.tensors.at("optimizer/0.weight/master").dtype() == f32);
  CHECK(file.tensors.contains("optimizer/0.weight/exp_avg"));
  CHECK(file.metadata.at("scaler.0.scale") == "131072");
  CHECK(file.metadata.at("scaler.0.noskip") == "1");
  CHECK(file.metadata.at("optimizer/0.weight/steps") == "3");
  CHECK(file.metadata.at("run.iteration") == "3");
  CHECK(file.metadata.contains("random.offset"));

  resumed.to_fp16({.max_noskip = 2});
  resumed.resume(path);
  resumed.fit_one_cycle(2, 1e-2);
  CHECK(weights(a) == weights(b));
  CHECK(masters(saved) == masters(resumed));
  CHECK(state_values(saved) == state_values(resumed));
}

TEST_CASE("lr_find restores all of the state, bit for bit") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.to_fp16();
  learn.fit(2);
  const std::vector<double> before = weights(model), before_masters = masters(learn), state = state_values(learn);
  const LossScaler scaler = learn.mixed_precision()->scaler();
  learn.lr_find({.num_it = 20});
  CHECK(weights(model) == before);
  CHECK(masters(learn) == before_masters);
  CHECK(state_values(learn) == state);
  CHECK(learn.mixed_precision()->scaler() == scaler);
}

TEST_CASE("fit takes one rate per layer group") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.split({"1", "3"});
  learn.to_fp16().fit(1, {1e-4, 1e-2});
  const auto& groups = learn.optimizer().groups();
  CHECK(groups[0].lr == doctest::Approx(1e-4));
  CHECK(groups[1].lr == doctest::Approx(1e-3));
  CHECK(groups[2].lr == doctest::Approx(1e-2));
}

TEST_CASE("GANs train in fp16: a cast where a network begins, and for each its own masters, loss scale and clamping") {
  GANLearnerOptions options = gan_options();
  options.clip = 0.1;
  SmallGAN gan(Precision::f16, options);
  gan.learn.to_fp16({.loss_scale = 64});
  const Tensor gen_master = gan.gen_opt().groups()[0].entries[0].master,
               critic_master = gan.critic_opt().groups()[0].entries[0].master;
  gan.learn.add(std::make_shared<Overflow>(std::set<std::int64_t>{2}));  // the critic has the even batches
  gan.learn.fit(2);
  CHECK(gan.generator.dtype() == f16);
  CHECK(gan.critic.dtype() == f16);  // the generator's f32 output went into it
  CHECK(gan.gen_opt().groups()[0].entries[0].master.is_same(gen_master));
  CHECK(gan.critic_opt().groups()[0].entries[0].master.is_same(critic_master));
  CHECK(gan.gen_scaler() == LossScaler{.scale = 64, .noskip = 6});
  CHECK(gan.critic_scaler() == LossScaler{.scale = 32, .noskip = 4, .skipped = 1});
  double largest = 0;
  for (const double master : masters_of(gan.critic_opt())) largest = std::max(largest, std::abs(master));
  CHECK(largest == 0.1f);  // f32's 0.1, which is no half
}

TEST_CASE("a batch that overflowed does not reach batchnorm's running statistics") {
  std::vector<float> x(32 * 8, 0.5f);
  for (std::size_t i = 16 * 8; i < x.size(); ++i) x[i] = 1e6f;  // finite in f32, inf in f16
  const data::DataLoader loader(data::TensorDataset(from_vector(x, {32, 8}), zeros({32}, i64)), {.batch_size = 16});
  nn::Sequential model = small_mlp();
  Learner learn({loader, {}}, model, nn::cross_entropy, {.silent = true});
  learn.to_fp16();
  learn.fit(2);
  CHECK(learn.mixed_precision()->scaler().skipped == 2);
  for (const double value : weights(model)) CHECK(std::isfinite(value));
  CHECK(std::isfinite(learn.state.smooth_loss));
}

TEST_CASE("bool and byte inputs stay") {
  struct Inputs : nn::Module {
    nn::Linear linear{4, 3};
    std::vector<DType> seen;
    Tensor forward_many(const Tensors& inputs) override {
      seen.clear();
      for (const Tensor& x : inputs) seen.push_back(x.dtype());
      return linear(inputs[0]);
    }
    void visit(nn::Visitor& v) override { v.module("linear", linear); }
  } model;
  const data::TensorDataset dataset(Tensors{ones({8, 4}), zeros({8}, boolean), zeros({8}, u8), zeros({8}, i64)},
                                    {zeros({8}, i64)});
  Learner learn({data::DataLoader(dataset, {.batch_size = 4}), {}}, model, nn::cross_entropy, {.silent = true});
  learn.to_fp16().fit(1);
  CHECK(model.seen == std::vector<DType>{f16, boolean, u8, i64});
}
