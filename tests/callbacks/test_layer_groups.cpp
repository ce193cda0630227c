// Layer groups: split, freeze, a rate per group.

#include "callbacks/gradients.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Linear, batchnorm, ReLU, Linear, Tanh, Linear: "0", "1", "3" and "5" have parameters.
nn::Sequential three_layers() {
  manual_seed(3);
  return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 16), nn::Tanh(),
                        nn::Linear(16, 3));
}

/// The indices, in model.parameters(), of those that a run has moved.
std::vector<std::size_t> moved(Learner& learn, nn::Module& model, const LearningRates& lr = 1e-2) {
  std::vector<std::vector<double>> before;
  for (const Tensor& p : model.parameters()) before.push_back(p.to_vector<double>());
  learn.fit(2, lr);
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (model.parameters()[i].to_vector<double>() != before[i]) result.push_back(i);
  return result;
}

using Indices = std::vector<std::size_t>;

}  // namespace

TEST_CASE("split makes a group of each named module and what follows it") {
  nn::Sequential model = three_layers();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.split({"3", "5"});
  const auto& groups = learn.optimizer().groups();
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].entries.size() == 4);
  CHECK(groups[1].entries.size() == 2);
  CHECK(groups[2].entries.size() == 2);
  const Tensors parameters = model.parameters();
  CHECK(groups[1].entries[0].param.is_same(parameters[4]));
  CHECK(groups[2].entries[1].param.is_same(parameters[7]));
  learn.split({});
  CHECK(learn.optimizer().groups().size() == 1);

  CHECK_THROWS_WITH_AS(learn.split({"7"}), doctest::Contains("no module '7'"), Error);
  CHECK_THROWS_WITH_AS(learn.split({"5", "3"}), doctest::Contains("no module '3' after"), Error);
  CHECK_THROWS_WITH_AS(learn.split({"0"}), doctest::Contains("layer group 0 of 2 has no parameters"), Error);
  CHECK_THROWS_WITH_AS(learn.split({"2", "3"}), doctest::Contains("layer group 1 of 3 has no parameters"), Error);
  CHECK(learn.optimizer().groups().size() == 1);
}

TEST_CASE("a tied weight belongs to the first group that has it, nested modules split by path") {
  struct Nested : nn::Module {
    nn::Sequential body{nn::Linear(8, 8), nn::Linear(8, 8)};
    nn::Linear tied = static_cast<nn::Linear&>(body[0]), head{8, 3};
    Tensor forward(const Tensor& x) override { return head(tied(body(x))); }
    void visit(nn::Visitor& v) override {
      v.module("body", body);
      v.module("tied", tied);
      v.module("head", head);
    }
  } model;
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.split({"body.1", "head"});
  std::vector<std::size_t> sizes;
  for (const optim::ParamGroup& group : learn.optimizer().groups()) sizes.push_back(group.entries.size());
  CHECK(sizes == Indices{2, 2, 2});
}

TEST_CASE("freeze trains the last group and batchnorm, freeze_to what follows, unfreeze all") {
  for (const bool fp16 : {false, true})
    for (const bool flat : {false, true})
      for (const bool train_bn : {true, false}) {
        nn::Sequential model = three_layers();
        Learner learn(small_data(), model, nn::cross_entropy, {.silent = true, .train_bn = train_bn});
        learn.split({"3", "5"});
        if (fp16) learn.to_fp16({.flat_master = flat});
        const auto with_bn = [&](Indices rest) {
          if (train_bn) rest.insert(rest.begin(), {2, 3});
          return rest;
        };
        learn.freeze();
        CHECK(moved(learn, model) == with_bn({6, 7}));
        learn.freeze_to(1);
        CHECK(moved(learn, model) == with_bn({4, 5, 6, 7}));
        learn.freeze_to(3);
        if (train_bn) CHECK(moved(learn, model) == Indices{2, 3});
        learn.unfreeze();
        CHECK(moved(learn, model) == Indices{0, 1, 2, 3, 4, 5, 6, 7});
        learn.freeze();  // state and masters of the frozen ones stay
        const std::int64_t steps = learn.optimizer().groups()[0].entries[0].steps();
        const std::vector<double> master = learn.optimizer().groups()[0].entries[0].master.to_vector<double>();
        learn.fit(1);
        CHECK(learn.optimizer().groups()[0].entries[0].steps() == steps);
        CHECK(learn.optimizer().groups()[0].entries[0].master.to_vector<double>() == master);
        CHECK_THROWS_AS(learn.freeze_to(4), Error);
        CHECK_THROWS_AS(learn.freeze_to(-4), Error);
      }
}

TEST_CASE("each group has its own rate, and two rates spread geometrically") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = three_layers();
    Learner learn(small_data(), model, nn::cross_entropy, {.opt = optim::sgd(), .silent = true});
    learn.split({"3", "5"});
    if (fp16) learn.to_fp16();
    CHECK(moved(learn, model, {0, 0, 1e-2}) == Indices{6, 7});
    const auto rates = [&] {
      std::vector<double> all;
      for (const optim::ParamGroup& group : learn.optimizer().groups()) all.push_back(group.lr);
      return all;
    };
    CHECK(rates() == std::vector<double>{0, 0, 1e-2});
    learn.fit(1, {1e-3, 2e-3, 3e-3});
    CHECK(rates() == std::vector<double>{1e-3, 2e-3, 3e-3});
    learn.fit(1, {1e-5, 1e-3});
    CHECK(rates()[0] == doctest::Approx(1e-5));
    CHECK(rates()[1] == doctest::Approx(1e-4));
    CHECK(rates()[2] == doctest::Approx(1e-3));
    CHECK_THROWS_WITH_AS(learn.fit(1, {1, 2, 3, 4}), doctest::Contains("4 were given for 3 layer groups"), Error);
  }
}
