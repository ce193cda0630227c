#include "callbacks/activation_stats.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// x and 2x, with a layer that is called twice and one that is never called.
struct Net : nn::Module {
  nn::Linear first{1, 2, {.bias = false}};
  nn::ReLU act;
  nn::Linear idle{3, 3};
  Net() { first.weight.set_data(tensor({{1}, {2}}).requires_grad_()); }
  Tensor forward(const Tensor& x) override { return act(act(first(x)) - 1); }
  void visit(nn::Visitor& v) override {
    v.module("first", first);
    v.module("act", act);
    v.module("idle", idle);
  }
};

/// Four batches of two samples each, all -1 and 3, so that `first` gives -1, -2, 3, 6 while its weights stay.
data::Data signs() {
  std::vector<float> x;
  for (int i = 0; i < 4; ++i) x.insert(x.end(), {-1, 3});
  const data::DataLoader loader(data::TensorDataset(from_vector(x, {8, 1}), zeros({8})), {.batch_size = 2});
  return {loader, loader};
}

const LossFn mean_output = [](const Tensor& output, const Tensor&) { return mean(output); };

}  // namespace

TEST_CASE("ActivationStats sees mean, spread, zeros and histogram of each layer, as computed by hand") {
  for (const bool fp16 : {false, true}) {
    Net net;
    const auto stats = std::make_shared<ActivationStats>(
        ActivationStatsOptions{.modules = {"first", "act"}, .every = 2, .near_zero = 1, .bins = 4, .range = {-2, 2}});
    Learner learn(signs(), net, mean_output, {.opt = optim::sgd({.lr = 0}), .callbacks = {stats}, .silent = true});
    if (fp16) learn.to_fp16();
    learn.fit(2);  // 4 batches each
    CHECK(stats->iterations() == std::vector<std::int64_t>{0, 2, 4, 6});
    REQUIRE(stats->layers().size() == 2);
    const LayerActivations &first = stats->layer("first"), &act = stats->layer("act");
    CHECK(&first == &stats->layers()[0]);
    CHECK(first.layer == net.first.describe());
    REQUIRE(first.mean.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      // -1, -2, 3, 6: deviations -2.5, -3.5, 1.5, 4.5
      CHECK(first.mean[i] == 1.5);
      CHECK(first.std[i] == doctest::Approx(std::sqrt((6.25 + 12.25 + 2.25 + 20.25) / 3)));
      CHECK(first.near_zero[i] == 0.25);
      CHECK(first.histogram[i] == std::vector<std::int64_t>{1, 1, 0, 0});  // 3 and 6 are outside
      // its second call: 0, 0, 2, 5
      CHECK(act.mean[i] == 1.75);
      CHECK(act.near_zero[i] == 0.5);
      CHECK(act.histogram[i] == std::vector<std::int64_t>{0, 0, 2, 1});  // 2, the end of the range, is in the last bin
    }
  }
}

TEST_CASE("f16 activations are summed without loss") {
  // 4096 ones and a sum beyond the integers that f16 holds; every other one is 1 + 2^-10.
  std::vector<float> x(4096, 1.0f);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] += 0x1p-10f;
  const data::DataLoader loader(data::TensorDataset(from_vector(x, {1, 4096}), zeros({1})), {.batch_size = 1});
  struct Model : nn::Module {
    Tensor w = ones({1}).requires_grad_();
    Tensor forward(const Tensor& x) override { return x * w; }
    void visit(nn::Visitor& v) override { v.parameter("w", w); }
  } model;
  const auto stats = std::make_shared<ActivationStats>();  // by default all with parameters of their own
  Learner learn({loader, {}}, model, mean_output, {.callbacks = {stats}, .silent = true});
  learn.to_fp16();
  learn.fit(1, 0.0);
  REQUIRE(stats->layers().size() == 1);
  CHECK(stats->layers()[0].path.empty());
  CHECK(stats->layers()[0].mean[0] == 1 + 0x1p-11);
  CHECK(stats->layers()[0].std[0] == doctest::Approx(0x1p-11 * std::sqrt(4096.0 / 4095)));
  CHECK(stats->layers()[0].histogram[0].empty());
  CHECK(contains(stats->table(), "Model()"));
}

TEST_CASE("modules are chosen by path, by filter, or by having parameters") {
  const auto watched = [](ActivationStatsOptions options) {
    nn::Sequential model = small_mlp();
    const auto stats = std::make_shared<ActivationStats>(std::move(options));
    Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {stats}, .silent = true});
    learn.fit(1);
    std::string paths;
    for (const LayerActivations& layer : stats->layers()) paths += layer.path + " ";
    return paths;
  };
  CHECK(watched({}) == "0 1 3 ");
  CHECK(watched({.modules = {"2", "0", ""}}) == " 0 2 ");
  CHECK(watched({.filter = [](const std::string&, const nn::Module& m) { return m.name() == "Linear"; }}) == "0 3 ");
  CHECK(watched({.modules = {"2", "0"},
                 .filter = [](const std::string& path, const nn::Module&) { return path != "0"; }}) == "2 ");
  CHECK(contains(message_of([&] { watched({.modules = {"0", "7"}}); }), "the model has no module '7'"));
  CHECK(contains(message_of([&] { watched({.filter = [](auto&, auto&) { return false; }}); }), "no module"));
}

TEST_CASE("a layer that is not called has no numbers; a NaN shows") {
  Net net;
  const auto stats = std::make_shared<ActivationStats>();
  Learner learn(signs(), net, mean_output, {.callbacks = {stats}, .silent = true});
  learn.fit(1);
  CHECK(stats->layer("idle").mean.size() == 4);
  CHECK(std::isnan(stats->layer("idle").mean[3]));
  CHECK(std::isfinite(stats->layer("first").mean[3]));
  CHECK_THROWS_WITH_AS(stats->layer("act"), doctest::Contains("'act' is not one of the 2 modules"), Error);

  const data::DataLoader bad(data::TensorDataset(from_vector(std::vector<float>{1, NAN}, {2, 1}), zeros({2})),
                             {.batch_size = 2, .check_finite = false});
  Learner poisoned({bad, {}}, net, mean_output, {.callbacks = {stats}, .silent = true});
  CHECK_THROWS_AS(poisoned.fit(1), Error);
  CHECK(std::isnan(stats->layer("first").mean.at(0)));
  CHECK(stats->layer("first").near_zero.at(0) == 0);
}

TEST_CASE("the hooks are gone after the run, however it ended, and a forward pass in between is not counted") {
  struct Disturb : Callback {
    bool dies = false;
    void on_backward_end(Learner& learn) override {
      NoGrad guard;
      learn.model()(Tensors{full({2, 1}, 100)});  // as a search for a NaN would
      check(!dies || learn.state.iteration < 2, "enough");
    }
  };
  Net net;
  const auto disturb = std::make_shared<Disturb>();
  {
    const auto stats = std::make_shared<ActivationStats>();
    Learner learn(signs(), net, mean_output,
                  {.opt = optim::sgd({.lr = 0}), .callbacks = {stats, disturb}, .silent = true});
    learn.fit(2);
    CHECK(stats->layer("first").mean == std::vector<double>(8, 1.5));
    disturb->dies = true;
    CHECK(message_of([&] { learn.fit(1); }) == "enough");
    CHECK(stats->layer("first").mean == std::vector<double>(3, 1.5));
    learn.validate();
    CHECK(stats->iterations().size() == 3);
    disturb->dies = false;
    // Taken out of a run by another callback: no on_train_end comes any more.
    struct Remove : Callback {
      CallbackPtr other;
      void on_epoch_begin(Learner& learn) override { learn.remove(std::exchange(other, nullptr)); }
    };
    const auto remove = std::make_shared<Remove>();
    remove->other = std::make_shared<ActivationStats>();
    learn.add(remove->other);
    learn.add(remove);
    learn.fit(1);
    CHECK(stats->iterations().size() == 4);
  }
  net(Tensors{zeros({2, 1})});  // the sanitizer sees a hook that was left behind
}

TEST_CASE("the table shows the last batch, the chart all of them") {
  Net net;
  const auto stats = std::make_shared<ActivationStats>(ActivationStatsOptions{.modules = {"first", "act"}});
  CHECK(stats->table() == "layer        mean         std  near zero\n");
  Learner learn(signs(), net, mean_output, {.opt = optim::sgd({.lr = 0}), .callbacks = {stats}, .silent = true});
  learn.fit(1);
  CHECK(stats->table() ==
        "layer                                 mean         std  near zero\n"
        "first Linear(1, 2, bias=false)         1.5       3.697       0.0%\n"
        "act ReLU()                            1.75       2.363      50.0%\n");
  const Chart chart = stats->chart(ActivationStatistic::near_zero);
  CHECK(chart.title == "Share of activations near zero");
  REQUIRE(chart.curves.size() == 2);
  CHECK(chart.curves[1].label == "act");
  CHECK(chart.curves[1].x == std::vector<double>{0, 1, 2, 3});
  CHECK(chart.curves[1].y == std::vector<double>(4, 0.5));
  CHECK(stats->chart(ActivationStatistic::mean).curves[0].y == stats->layer("first").mean);
  CHECK(stats->chart(ActivationStatistic::std).curves[0].y == stats->layer("first").std);
}

TEST_CASE("options of ActivationStats that make no sense are errors") {
  CHECK_THROWS_WITH_AS(ActivationStats({.every = 0}), doctest::Contains("every 0 batches"), Error);
  CHECK_THROWS_WITH_AS(ActivationStats({.near_zero = -1}), doctest::Contains("near_zero -1"), Error);
  CHECK_THROWS_WITH_AS(ActivationStats({.bins = -1}), doctest::Contains("-1 bins"), Error);
  CHECK_THROWS_WITH_AS(ActivationStats({.range = {1, 1}}), doctest::Contains("range from 1 to 1"), Error);
  CHECK_THROWS_WITH_AS(ActivationStats({.range = {0, inf}}), doctest::Contains("is empty or infinite"), Error);
}
