// LearningRates, PhaseScheduler, and OneCycle and FlatCos, which are made of phases.

#include "optim/anneal.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// Writes down the rate of each group and the momentum of the last before each step.
struct Watch : Callback {
  std::vector<std::vector<double>> lrs;
  std::vector<double> moms;
  void on_backward_begin(Learner& learn) override {
    lrs.emplace_back();
    for (const optim::ParamGroup& group : learn.optimizer().groups()) lrs.back().push_back(group.lr);
    moms.push_back(learn.optimizer().groups().back().momentum);
  }
};

/// A small network in two layer groups; three batches per epoch.
struct Run {
  nn::Sequential model = small_mlp();
  std::shared_ptr<Watch> watch = std::make_shared<Watch>();
  Learner learn{small_data(), model, nn::cross_entropy, {.callbacks = {watch}, .silent = true}};
  Run() {
    const Tensors p = model.parameters();
    learn.optimizer().regroup({{.params = {p[0], p[1]}}, {.params = {p[2], p[3], p[4], p[5]}}});
  }
  /// The numbers of a fit with such phases.
  const Watch& fit(int epochs, const std::vector<TrainingPhase>& phases, double lr = 1e-3) {
    const auto scheduler = std::make_shared<PhaseScheduler>(phases);
    learn.add(scheduler);
    *watch = {};
    learn.fit(epochs, lr);
    learn.remove(scheduler);
    return *watch;
  }
};

}  // namespace

TEST_CASE("one rate for all layer groups, one each, or two ends of a geometric series") {
  CHECK(LearningRates(0.5).for_groups(3) == std::vector<double>{0.5, 0.5, 0.5});
  CHECK(LearningRates({1, 2, 3}).for_groups(3) == std::vector<double>{1, 2, 3});
  CHECK((LearningRates({1, 2, 4}) / 2).for_groups(3) == std::vector<double>{0.5, 1, 2});
  const LearningRates ends = {1e-5, 1e-2};
  const std::vector<double> spread = ends.for_groups(4);
  REQUIRE(spread.size() == 4);
  CHECK(spread.front() == 1e-5);
  CHECK(spread[1] == doctest::Approx(1e-4));
  CHECK(spread[2] == doctest::Approx(1e-3));
  CHECK(spread.back() == 1e-2);
  CHECK(ends.for_groups(1) == std::vector<double>{1e-2});
  CHECK(ends.for_groups(2) == std::vector<double>{1e-5, 1e-2});
  CHECK(LearningRates({0, 1}).for_groups(2) == std::vector<double>{0, 1});  // nothing to spread
  CHECK_THROWS_WITH_AS(LearningRates({0, 1}).for_groups(3), doctest::Contains("both must be positive"), Error);
  CHECK_THROWS_WITH_AS(LearningRates({1, 2, 3}).for_groups(2), doctest::Contains("3 were given for 2 layer groups"),
                       Error);
  CHECK_THROWS_AS(LearningRates(NAN).for_groups(1), Error);
  CHECK_THROWS_AS(LearningRates(inf).for_groups(1), Error);
  CHECK_THROWS_AS(LearningRates(-1.0).for_groups(1), Error);
}

TEST_CASE("one cycle: rates and momentum as fastai's, per layer group, momentum as before at the end") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  const Tensors p = model.parameters();
  learn.optimizer().regroup({{.params = {p[0], p[1]}}, {.params = {p[2], p[3], p[4], p[5]}}});
  for (const bool fp16 : {false, true}) {
    if (fp16) learn.to_fp16();
    learn.fit_one_cycle(4, {1e-3, 1e-2});  // 12 batches: 3 up, 9 down
    const Recorder& r = learn.recorder();
    REQUIRE(r.lrs.size() == 12);
    CHECK(r.lrs[0] == doctest::Approx(1e-2 / 25));
    CHECK(r.lrs[1] == doctest::Approx(optim::anneal_cos(1e-2 / 25, 1e-2, 1.0 / 3)));
    CHECK(r.lrs[3] == doctest::Approx(1e-2));
    CHECK(r.lrs[11] == doctest::Approx(optim::anneal_cos(1e-2, 1e-2 / 25e4, 8.0 / 9)));
    CHECK(r.moms[0] == doctest::Approx(0.95));
    CHECK(r.moms[3] == doctest::Approx(0.85));
    CHECK(r.moms[11] == doctest::Approx(optim::anneal_cos(0.85, 0.95, 8.0 / 9)));
    CHECK(learn.optimizer().groups()[0].lr == doctest::Approx(r.lrs[11] / 10));
    CHECK(learn.optimizer().groups()[0].momentum == 0.9);
  }
  learn.fit_one_cycle(1, 1e-2, {.moms = {0.8, 0.7}, .div_factor = 10, .pct_start = 0, .final_div = 100});
  CHECK(learn.recorder().lrs[0] == doctest::Approx(1e-2));
  CHECK(learn.recorder().moms[0] == doctest::Approx(0.7));
  learn.fit_one_cycle(1, 1e-2, {.pct_start = 1});
  CHECK(learn.recorder().lrs[0] == doctest::Approx(1e-2 / 25));
  CHECK_THROWS_AS(learn.fit_one_cycle(1, 1e-2, {.div_factor = 0}), Error);
  CHECK_THROWS_AS(learn.fit_one_cycle(1, 1e-2, {.pct_start = 2}), Error);
  CHECK_THROWS_AS(learn.fit_one_cycle(1, -1.0), Error);
}

TEST_CASE("one cycle gives the bits of the formula, whatever the options") {
  const std::vector<double> max_lr = {3e-4, 7e-3};
  for (const OneCycleOptions& options :
       {OneCycleOptions{}, OneCycleOptions{.moms = {0.9, 0.7}, .div_factor = 10, .pct_start = 0.45, .final_div = 300},
        OneCycleOptions{.pct_start = 0}, OneCycleOptions{.pct_start = 1}})
    for (const int epochs : {1, 3, 7}) {
      Run run;
      run.learn.fit_one_cycle(epochs, {max_lr[0], max_lr[1]}, options);
      const double batches = 3.0 * epochs, up = std::floor(batches * options.pct_start), down = batches - up;
      const double final_div = options.final_div.value_or(options.div_factor * 1e4);
      REQUIRE(run.watch->moms.size() == static_cast<std::size_t>(3 * epochs));
      for (std::size_t i = 0; i < run.watch->moms.size(); ++i) {
        const double at = static_cast<double>(i);
        const bool rising = at < up;
        for (std::size_t g = 0; g < 2; ++g)
          CHECK(run.watch->lrs[i][g] == (rising
                                             ? optim::anneal_cos(max_lr[g] / options.div_factor, max_lr[g], at / up)
                                             : optim::anneal_cos(max_lr[g], max_lr[g] / final_div, (at - up) / down)));
        CHECK(run.watch->moms[i] ==
              (rising ? optim::anneal_cos(options.moms.first, options.moms.second, at / up)
                      : optim::anneal_cos(options.moms.second, options.moms.first, (at - up) / down)));
      }
    }
}

TEST_CASE("flat cos: flat, then a cosine down to lr / div_final; momentum is left alone") {
  for (const bool fp16 : {false, true}) {
    Run run;
    if (fp16) run.learn.to_fp16();
    run.learn.fit_flat_cos(4, {1e-3, 1e-2});  // 12 batches: 9 flat, 3 down
    const Watch& watch = *run.watch;
    REQUIRE(watch.lrs.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      const double fraction = i < 9 ? 0 : static_cast<double>(i - 9) / 3;
      CHECK(watch.lrs[i][0] == doctest::Approx(optim::anneal_cos(1e-3, 1e-8, fraction)));
      CHECK(watch.lrs[i][1] == doctest::Approx(optim::anneal_cos(1e-2, 1e-7, fraction)));
      CHECK(watch.moms[i] == 0.9);
    }
    CHECK(run.learn.find<FlatCos>() == nullptr);
    run.learn.fit_flat_cos(1, 1e-2, {.pct_start = 0, .div_final = 10}, 0.25);
    CHECK(watch.lrs[13][1] == doctest::Approx(optim::anneal_cos(1e-2, 1e-3, 1.0 / 3)));
    CHECK(run.learn.optimizer().groups()[1].weight_decay == 0.25);
  }
  Run run;
  CHECK_THROWS_WITH_AS(run.learn.fit_flat_cos(1, 1e-2, {.pct_start = 1.5}), doctest::Contains("pct_start 1.5"), Error);
  CHECK_THROWS_WITH_AS(run.learn.fit_flat_cos(1, 1e-2, {.div_final = 0}), doctest::Contains("div_final 0"), Error);
  CHECK_THROWS_AS(run.learn.fit_flat_cos(1, {1, 2, 3}), Error);
  CHECK(run.learn.find<FlatCos>() == nullptr);
}

TEST_CASE("phases follow each other, by batches, by share, and by what is left") {
  Run run;
  const Watch& watch =
      run.fit(4, {{.batches = 2, .lr = {{.start = 0.1, .end = 0.3}}, .momentum = {{.start = 0.5}}},
                  {.lr = {{.start = LearningRates{0.01, 1.0}, .end = 0.1, .curve = optim::anneal_exp}}},
                  {.share = 0.25, .momentum = {{.start = 0.5, .end = 0.8, .curve = optim::anneal_poly(2)}}}});
  // 12 batches: 2, then what is left, 7, then 3
  REQUIRE(watch.lrs.size() == 12);
  CHECK(watch.lrs[0] == std::vector<double>{0.1, 0.1});
  CHECK(watch.lrs[1][0] == doctest::Approx(0.2));
  for (int i = 0; i < 7; ++i) {
    CHECK(watch.lrs[2 + i][0] == doctest::Approx(0.01 * std::pow(10, i / 7.0)));
    CHECK(watch.lrs[2 + i][1] == doctest::Approx(std::pow(0.1, i / 7.0)));
    CHECK(watch.moms[2 + i] == 0.5);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK(watch.lrs[9 + i][0] == doctest::Approx(0.1));  // where the second phase ended, not its last batch
    CHECK(watch.moms[9 + i] == doctest::Approx(0.8 - 0.3 * std::pow(1 - i / 3.0, 2)));
  }
  CHECK(run.learn.optimizer().groups()[1].momentum == 0.9);
}

TEST_CASE("a run may be longer or shorter than its phases, and a phase may be empty") {
  Run run;
  const std::vector<TrainingPhase> four = {{.batches = 4, .lr = {{.start = 0.1, .end = 0.5}}}};
  CHECK(run.fit(2, four).lrs[3][0] == doctest::Approx(0.4));
  CHECK(run.fit(2, four).lrs[4][0] == doctest::Approx(0.5));
  CHECK(run.fit(2, four).lrs[5][0] == doctest::Approx(0.5));
  CHECK(run.fit(1, four).lrs[2][0] == doctest::Approx(0.3));
  // No batch is left for the first phase: the second starts at once.
  const Watch& watch = run.fit(1, {{.lr = {{.start = 5}}}, {.batches = 9, .lr = {{.start = 0.1}}}});
  CHECK(watch.lrs[0][1] == 0.1);
  // A phase that says nothing leaves all as fit() set it.
  CHECK(run.fit(1, {{.share = 1}}, 0.125).lrs[2] == std::vector<double>{0.125, 0.125});
}

TEST_CASE("all optimizers get their rates, and their momentum back") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  const Tensors p = model.parameters();
  std::vector<std::unique_ptr<optim::Optimizer>> two;
  two.push_back(optim::adam()({{.params = {p[0]}}, {.params = {p[1]}}, {.params = {p[2], p[3]}}}));
  two.push_back(optim::sgd({.momentum = 0.75})({{.params = {p[4], p[5]}}}));
  learn.set_optimizers(std::move(two));
  learn.fit_one_cycle(1, {1e-4, 1e-2}, {.pct_start = 0});
  const double last = optim::anneal_cos(1, 1 / 25e4, 2.0 / 3);  // of the highest rate
  CHECK(learn.optimizers()[0]->groups()[0].lr == doctest::Approx(1e-4 * last));
  CHECK(learn.optimizers()[0]->groups()[1].lr == doctest::Approx(1e-3 * last));
  CHECK(learn.optimizers()[0]->groups()[2].lr == doctest::Approx(1e-2 * last));
  CHECK(learn.optimizers()[1]->groups()[0].lr == doctest::Approx(1e-2 * last));
  CHECK(learn.optimizers()[0]->groups()[2].momentum == 0.9);
  CHECK(learn.optimizers()[1]->groups()[0].momentum == 0.75);
}

TEST_CASE("what is set is a function of the iteration alone") {
  Run run;
  run.learn.fit_one_cycle(4, 1e-2);
  OneCycle fresh(1e-2);
  for (const std::size_t iteration : {7, 2, 11}) {
    run.learn.state.train = true;
    run.learn.state.iteration = static_cast<std::int64_t>(iteration);
    fresh.on_batch_begin(run.learn);
    CHECK(run.learn.optimizer().groups()[1].lr == run.watch->lrs[iteration][1]);
    CHECK(run.learn.optimizer().groups()[1].momentum == run.watch->moms[iteration]);
  }
  run.learn.state.train = false;  // validation sets nothing
  run.learn.optimizer().set_lr(0.5);
  fresh.on_batch_begin(run.learn);
  CHECK(run.learn.optimizer().groups()[1].lr == 0.5);
}

TEST_CASE("a schedule that is resumed gives back the momentum from before the run") {
  Run run;
  OneCycle first(1e-2), resumed(1e-2);
  CHECK(first.save_state().empty());
  first.on_train_begin(run.learn);
  run.learn.optimizer().groups()[1].momentum = 0.86;  // as a checkpoint of the optimizer has it, in the middle
  resumed.on_train_begin(run.learn);
  resumed.load_state(first.save_state());
  resumed.on_train_end(run.learn, nullptr);
  CHECK(run.learn.optimizer().groups()[1].momentum == 0.9);
  CHECK_THROWS_WITH_AS(resumed.load_state({}), doctest::Contains("no tensor 'momentum_before'"), Error);
}

TEST_CASE("phases that make no sense are errors") {
  const auto message = [](const std::vector<TrainingPhase>& phases) {
    return message_of([&] { PhaseScheduler scheduler(phases); });
  };
  CHECK(contains(message({}), "there is no phase"));
  CHECK(contains(message({{.batches = 1, .share = 0.5}}), "phase 0 has its length as batches and as share"));
  CHECK(contains(message({{.batches = 1}, {.batches = -2}}), "phase 1 lasts -2 batches"));
  CHECK(contains(message({{.share = 1.5}}), "the share 1.5"));
  CHECK(contains(message({{.share = NAN}}), "the share nan"));
  CHECK(contains(message({{.share = 0.6}, {.share = 0.6}}), "add up to 1.2"));
  CHECK(contains(message({{}, {.batches = 1}, {}}), "2 phases have no length"));
  CHECK(contains(message({{.momentum = {{.start = 0.5, .end = 1.0}}}}), "momentum 1 of phase 0"));
  CHECK(contains(message({{.lr = {{.start = 1, .curve = {}}}}}), "a curve of phase 0 is an empty function"));
  CHECK(message({{.share = 0.3}, {.share = 0.6}, {.share = 0.1}}).empty());
  CHECK_THROWS_WITH_AS(Run().fit(1, {{.lr = {{.start = -1}}}}), doctest::Contains("learning rate -1"), Error);
  CHECK_THROWS_WITH_AS(Run().fit(1, {{.lr = {{.start = LearningRates{1, 2, 3}}}}}), doctest::Contains("3 were given"),
                       Error);
}
