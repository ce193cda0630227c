#include <cstring>

#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Multiplies what passes by a factor in f16.
struct Amplify : nn::Module {
  double factor = 1;
  Tensor forward(const Tensor& x) override { return x * factor; }
};

/// sqrt(x * weight): at weight 0 finite, with an infinite derivative.
struct Root : nn::Module {
  Tensor weight = zeros({8}).requires_grad_();
  Tensor forward(const Tensor& x) override { return sqrt(x * weight); }
  void visit(nn::Visitor& v) override { v.parameter("weight", weight); }
};

struct Net : nn::Module {
  nn::Linear first{8, 8};
  Amplify middle;
  Root root;
  nn::Linear last{8, 3};
  Tensor forward(const Tensor& x) override {
    const Tensor h = middle(first(x));
    return last(use_root ? h + root(relu(h)) : h);
  }
  void visit(nn::Visitor& v) override {
    v.module("first", first);
    v.module("middle", middle);
    v.module("root", root);
    v.module("last", last);
  }
  bool use_root = false;
};

}  // namespace

TEST_CASE("to_fp16 converts all but batchnorm, and casts floating inputs only") {
  struct WithEmbedding : nn::Module {
    nn::Embedding embedding{5, 8};
    nn::Linear linear{8, 3};
    nn::BatchNorm1d norm{3};
    Tensor forward_many(const Tensors& inputs) override {
      seen = {inputs[0].dtype(), inputs[1].dtype(), inputs[2].dtype()};
      return norm(linear(embedding(inputs[0]) + inputs[1]));
    }
    void visit(nn::Visitor& v) override {
      v.module("embedding", embedding);
      v.module("linear", linear);
      v.module("norm", norm);
    }
    std::vector<DType> seen;
  } model;
  const std::vector<bool> flags(12, true);
  const data::TensorDataset dataset({randint(0, 5, {12}), ones({12, 8}), from_vector(flags)}, {zeros({12}, i64)});
  data::DataLoader loader(dataset, {.batch_size = 6});
  Learner learn({loader, loader}, model, nn::cross_entropy, {.silent = true});
  model.norm.weight.detach().fill_(1.0 / 3);  // not a half
  const float exact = model.norm.weight.to_vector<float>()[0];
  learn.to_fp16();
  CHECK(model.linear.weight.dtype() == f16);
  CHECK(model.embedding.weight.dtype() == f16);
  CHECK(model.norm.weight.dtype() == f32);
  CHECK(model.norm.running_mean.dtype() == f32);
  CHECK(model.norm.weight.to_vector<float>()[0] == exact);
  CHECK(model.linear.weight.requires_grad());

  learn.fit(1);
  CHECK(model.seen == std::vector<DType>{i64, f16, boolean});
  learn.to_fp32().validate();
  CHECK(model.seen == std::vector<DType>{i64, f32, boolean});
}

TEST_CASE("the loss sees f32 outputs, unless loss_fp32 is off; what users read is never scaled") {
  struct Watch : Callback {
    int order() const override { return 1000; }  // even after MixedPrecision
    DType expected = f32;
    void at(Learner& learn) {
      CHECK(learn.state.last_output.dtype() == expected);
      CHECK(learn.state.last_loss.item() < 10);
    }
    void on_backward_begin(Learner& learn) override { at(learn); }
    void on_backward_end(Learner& learn) override { at(learn); }
    void on_step_end(Learner& learn) override { at(learn); }
    void on_batch_end(Learner& learn) override { at(learn); }
  };
  nn::Sequential model = small_mlp();
  const auto watch = std::make_shared<Watch>();
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {watch}, .silent = true});
  learn.to_fp16();
  learn.fit(1);
  watch->expected = f16;
  learn.to_fp16({.loss_scale = 1024, .loss_fp32 = false});
  learn.fit(1);
  CHECK(learn.mixed_precision()->scaler().skipped == 0);
  for (const double loss : learn.recorder().losses) CHECK(loss < 10);
}

TEST_CASE("the fused step gives the bits of the plain sequence") {
  for (const double scale : {65536.0, 1000.0})
    for (const std::optional<double> clip : {std::optional<double>(), std::optional<double>(0.3)})
      for (const auto& opt : {optim::adamw({.lr = 1e-2}), momentum_sgd()}) {
        nn::Sequential model = small_mlp(), plain = small_mlp();
        data::Data data = small_data();
        Learner learn(data, model, nn::cross_entropy, {.opt = opt, .silent = true});
        learn.to_fp16({.loss_scale = scale, .clip = clip});

        Tensors values;
        for (const Tensor& p : plain.parameters()) values.push_back(p.detach().clone().requires_grad_());
        plain.to(f16);
        const Tensors params = plain.parameters();
        const auto optimizer = opt({{.params = values}});

        data::DataLoader by_hand = data.train;
        for (int epoch = 0; epoch < 5; ++epoch) {
          learn.fit(1);
          for (const data::Batch& batch : by_hand) {
            const Tensor loss = nn::cross_entropy(cast(plain(batch.inputs[0].to(f16)), f32), batch.targets[0]);
            (loss * scale).backward();
            CHECK(plain_mixed_precision_step(params, values, *optimizer, scale, clip));
            plain.zero_grad();
          }
        }
        CHECK(learn.mixed_precision()->scaler().skipped == 0);
        CHECK(weights(model) == weights(plain));
        std::vector<double> plain_masters;
        for (const Tensor& v : values)
          for (const double x : v.to_vector<double>()) plain_masters.push_back(x);
        CHECK(masters(learn) == plain_masters);
      }
}

TEST_CASE("the plain sequence changes nothing when a gradient is not finite") {
  Tensor param = ones({3}, f16).requires_grad_(), master = ones({3}).requires_grad_();
  optim::SGD sgd(Tensors{master}, {.lr = 0.5});
  param.set_grad(tensor({1, static_cast<double>(inf), 1}, f16));
  CHECK_FALSE(plain_mixed_precision_step({param}, {master}, sgd, 2));
  CHECK(master.to_vector<double>() == std::vector<double>{1, 1, 1});
  param.set_grad(tensor({1, 2, 0}, f16));
  CHECK(plain_mixed_precision_step({param}, {master}, sgd, 2));
  CHECK(param.to_vector<double>() == std::vector<double>{0.75, 0.5, 1});
}

TEST_CASE("to_fp16 and back without training loses nothing; with it, the masters' precision comes back") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
  const std::vector<double> before = weights(model);
  for (const bool flat : {false, true}) {
    learn.to_fp16({.flat_master = flat});
    CHECK(weights(model) != before);
    learn.to_fp32();
    CHECK(weights(model) == before);
  }
  learn.to_fp16();
  learn.fit(2);
  const std::vector<double> trained = masters(learn), f16_weights = weights(model);
  learn.to_fp32();
  CHECK(learn.mixed_precision() == nullptr);
  CHECK(model.dtype() == f32);
  CHECK(masters(learn) == trained);
  CHECK(weights(model) != f16_weights);
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 6);

  const std::vector<double> losses = learn.recorder().losses;
  learn.fit(6);  // trains on
  CHECK(masters(learn) != trained);
  CHECK(learn.recorder().losses.back() < losses.front());
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 24);
}

TEST_CASE("to_fp16 twice keeps masters and state, and takes the new options") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.opt = momentum_sgd(), .silent = true});
  learn.to_fp16();
  learn.fit(2);
  const std::vector<double> before = masters(learn), rounded = weights(model);
  learn.to_fp16({.loss_scale = 128, .dynamic = false, .flat_master = true});
  CHECK(masters(learn) == before);
  CHECK(weights(model) == rounded);
  CHECK(learn.mixed_precision()->scaler().scale == 128);
  learn.fit(1);
  CHECK(learn.mixed_precision()->scaler().scale == 128);
  CHECK(learn.optimizer().groups()[0].entries[0].steps() == 9);
}

TEST_CASE("weights that are loaded between fits become the masters") {
  nn::Sequential model = small_mlp(), other = small_mlp(99);
  Learner learn(small_data(), model, nn::cross_entropy, {.opt = optim::sgd({.lr = 0}), .silent = true});
  learn.to_fp16();
  learn.fit(1);
  model.load_state_dict(other.state_dict());
  const std::vector<double> loaded = model.parameters()[0].to_vector<double>();
  learn.fit(1);
  CHECK(model.parameters()[0].to_vector<double>() == loaded);
}

TEST_CASE(
    "after 50 skips at the floor an Error names the first tensor that is not finite, its layer and how large it was") {
  manual_seed(5);
  Net model;
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  const auto message = [&](const MixedPrecisionOptions& options) {
    learn.to_fp16(options);
    const std::string text = message_of([&] { learn.fit(100); });
    CHECK(learn.state.iteration == 49 + (options.dynamic ? 16 : 0));
    CHECK(learn.mixed_precision()->scaler().scale == (options.dynamic ? 1 : 8));
    return text;
  };
  const MixedPrecisionOptions fixed{.loss_scale = 8, .dynamic = false};

  SUBCASE("an output") {
    model.middle.factor = 1e6;
    CHECK(contains(message({}), "the output of layer 'middle' (Amplify)"));
    CHECK(contains(message(fixed), "the output of layer 'middle' (Amplify), whose largest finite magnitude is "));
  }
  SUBCASE("a parameter") {
    learn.to_fp16();
    Tensor bias = learn.optimizer().groups()[0].entries.back().param;
    bias.detach().copy_(tensor({3, static_cast<double>(inf), -7}));
    const std::string text = message_of([&] { learn.fit(100); });
    CHECK(contains(text, "'bias' of layer 'last' (Linear), whose largest finite magnitude is 7"));
  }
  SUBCASE("a gradient, where all of the forward pass is finite") {
    model.use_root = true;
    CHECK(contains(message(fixed), "the gradient of 'weight' of layer 'first' (Linear)"));
    CHECK(contains(message({}), "the gradient of"));
  }
  SUBCASE("an input") {
    data::DataLoader loader(data::TensorDataset(full({16, 8}, 1e6), zeros({16}, i64)));
    Learner other({loader, {}}, model, nn::cross_entropy, {.silent = true});
    other.to_fp16(fixed);
    CHECK(contains(message_of([&] { other.fit(100); }), "input 0 of the batch, which holds no finite number"));
  }
}

TEST_CASE("looking for the tensor that is not finite changes no buffer and no random number") {
  manual_seed(5);
  nn::Sequential model(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Dropout(0.5), nn::Linear(8, 3));
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.to_fp16();
  learn.fit(1);
  const std::vector<double> before = weights(model);
  const GeneratorState random = default_generator().state();
  model.train();
  CHECK(contains(first_non_finite(learn), "second look"));
  CHECK(weights(model) == before);
  CHECK(default_generator().state() == random);
}
