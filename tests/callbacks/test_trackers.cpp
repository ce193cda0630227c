// EarlyStopping, ReduceLROnPlateau and TerminateOnNaN.

#include "callbacks/stop_after.h"
#include "callbacks/trackers.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

/// A Learner that is not trained: epochs are played to a tracker, one value each.
struct Stage {
  nn::Sequential model = small_mlp();
  Learner learn{small_data(), model, nn::cross_entropy, {.metrics = {accuracy, error_rate, mse}, .silent = true}};

  /// valid_loss, accuracy, error_rate and mse at once, and the smoothed training loss.
  void show(Callback& tracker, double value) {
    learn.state.smooth_loss = value;
    learn.state.last_metrics = std::vector<double>(4, value);
    tracker.on_epoch_end(learn);
  }
  /// After how many epochs a tracker that sees these values ends the run; 0: never.
  std::size_t epochs_until_stop(const EarlyStoppingOptions& options, const std::vector<double>& values) {
    learn.state = {};
    EarlyStopping tracker(options);
    tracker.on_train_begin(learn);
    for (std::size_t i = 0; i < values.size(); ++i) {
      show(tracker, values[i]);
      if (learn.state.stop_training) return i + 1;
    }
    return 0;
  }
};

/// A metric whose values, one per epoch, are given.
Metric scripted(const std::string& name, Learner*& learn, std::vector<double> values) {
  return {name, [&learn, values](const Tensor&, const Tensor&) {
            return values.at(static_cast<std::size_t>(learn->state.epoch));
          }};
}

struct Poison : Callback {
  explicit Poison(std::set<std::int64_t> iterations) : iterations(std::move(iterations)) {}
  std::set<std::int64_t> iterations;
  void on_batch_begin(Learner& learn) override {
    if (learn.state.train && iterations.contains(learn.state.iteration))
      learn.state.last_input[0] = full({2, 8}, NAN), learn.state.last_target[0] = zeros({2}, i64);
  }
};

std::set<std::int64_t> numbers(std::int64_t from, std::int64_t to) {
  std::set<std::int64_t> all;
  while (from < to) all.insert(from++);
  return all;
}

}  // namespace

TEST_CASE("EarlyStopping stops after more than `patience` epochs in a row without improvement") {
  Stage stage;
  CHECK(stage.epochs_until_stop({}, {3, 2, 1}) == 0);
  CHECK(stage.epochs_until_stop({}, {3, 2, 2, 1}) == 3);  // as good is not better
  CHECK(stage.epochs_until_stop({.patience = 1}, {3, 2, 2, 1, 2, 0.5, 1, 1}) == 8);
  CHECK(stage.epochs_until_stop({.patience = 2}, {3, 4, 5, 2, 4, 5, 6}) == 7);
  CHECK(stage.epochs_until_stop({.min_delta = 0.5}, {3, 2, 1.5}) == 3);  // better, but not by more than 0.5
  CHECK(stage.epochs_until_stop({.min_delta = 0.5, .patience = 1}, {3, 2.75, 2.25, 1.9, 1.8}) == 5);
  CHECK(stage.epochs_until_stop({}, {3, NAN}) == 2);
  CHECK(stage.epochs_until_stop({.patience = 1}, {NAN, 3, inf, 2, -inf}) == 0);
}

TEST_CASE("which way is better goes by the name, or by the mode") {
  Stage stage;
  const std::vector<double> rising = {1, 2, 3}, falling = {3, 2, 1};
  for (const char* name : {"valid_loss", "train_loss", "error_rate", "mse"}) {
    CHECK(stage.epochs_until_stop({.monitor = name}, rising) == 2);
    CHECK(stage.epochs_until_stop({.monitor = name}, falling) == 0);
    CHECK(stage.epochs_until_stop({.monitor = name, .mode = TrackMode::max}, rising) == 0);
  }
  CHECK(stage.epochs_until_stop({.monitor = "accuracy"}, rising) == 0);
  CHECK(stage.epochs_until_stop({.monitor = "accuracy"}, falling) == 2);
  CHECK(stage.epochs_until_stop({.monitor = "accuracy", .min_delta = 1}, rising) == 2);
  CHECK(stage.epochs_until_stop({.monitor = "accuracy", .mode = TrackMode::min}, falling) == 0);
}

TEST_CASE("the monitored value is the one of that name") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    Learner* at = nullptr;
    const auto stop = std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "second", .patience = 1});
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.metrics = {scripted("first", at, {1, 2, 3, 4, 5, 6}), scripted("second", at, {1, 3, 3, 2, 5, 6})},
                   .callbacks = {stop},
                   .silent = true});
    at = &learn;
    if (fp16) learn.to_fp16();
    learn.fit(6);
    CHECK(learn.state.epoch == 4);
    CHECK(stop->best() == 3);
    CHECK(learn.recorder().epochs.size() == 4);
    CHECK(learn.recorder().epochs.back().metrics[2] == 2);
    learn.fit(6);  // begins anew
    CHECK(learn.state.epoch == 4);
  }
}

TEST_CASE("a tracker says what it cannot monitor") {
  nn::Sequential model = small_mlp();
  const auto message = [&](const std::string& monitor, bool validation, Callback* other = nullptr) {
    data::Data data = small_data();
    if (!validation) data.valid = {};
    Learner learn(data, model, nn::cross_entropy, {.metrics = {accuracy}, .silent = true});
    learn.add(std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = monitor}));
    if (other) learn.add(CallbackPtr(other, [](Callback*) {}));
    return message_of([&] { learn.fit(2); });
  };
  CHECK(message("acuracy", true) ==
        "EarlyStopping: there is no 'acuracy' to monitor; known are train_loss, valid_loss, accuracy");
  CHECK(contains(message("valid_loss", false), "there is no validation data; monitor 'train_loss'"));
  CHECK(contains(message("accuracy", false), "'accuracy' comes from validation"));
  CHECK(message("train_loss", false).empty());
  struct NoValidation : Callback {
    void on_epoch_begin(Learner& learn) override { learn.state.skip_validate = true; }
  } no_validation;
  CHECK(contains(message("valid_loss", true, &no_validation), "epoch 0 had none"));
  StopAfterNBatches stop(1);  // ends the run without validation: there is nothing left to decide
  CHECK(message("valid_loss", true, &stop).empty());

  CHECK(contains(message_of([] { EarlyStopping({.min_delta = -1}); }), "min_delta -1"));
  CHECK(contains(message_of([] { EarlyStopping({.min_delta = NAN}); }), "min_delta nan"));
  CHECK(contains(message_of([] { EarlyStopping({.patience = -1}); }), "patience -1"));
  for (const double factor : {0.0, 1.0, -0.5, std::nan("")})
    CHECK_THROWS_WITH_AS(ReduceLROnPlateau({.factor = factor}), doctest::Contains("factor"), Error);
}

TEST_CASE("ReduceLROnPlateau multiplies the rate of every group, and waits anew") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    Learner* at = nullptr;
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.metrics = {scripted("score", at, {1, 1, 1, 1, 1, 2, 2, 2})},
                   .callbacks = {std::make_shared<ReduceLROnPlateau>(
                       ReduceLROnPlateauOptions{.monitor = "score", .patience = 1, .factor = 0.5})},
                   .silent = true});
    at = &learn;
    if (fp16) learn.to_fp16();
    const Tensors p = model.parameters();
    learn.optimizer().regroup({{.params = {p[0], p[1]}}, {.params = {p[2], p[3], p[4], p[5]}}});
    learn.fit(8, LearningRates{0.25, 0.5});
    // Reduced after epochs 2, 4 and 7, whose predecessors did not improve either.
    std::vector<double> expected;
    for (const double lr : {0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125}) expected.insert(expected.end(), 3, lr);
    CHECK(learn.recorder().lrs == expected);
    CHECK(learn.optimizer().groups()[0].lr == 0.03125);
    CHECK(learn.optimizer().groups()[1].lr == 0.0625);
    CHECK_THROWS_WITH_AS(learn.fit_one_cycle(1, 0.1), doctest::Contains("OneCycle sets the learning rate"), Error);
  }
}

TEST_CASE("trackers go on in a resumed run as if it had never stopped") {
  Stage stage;
  const EarlyStoppingOptions options{.patience = 2};
  EarlyStopping first(options), resumed(options), other(options);
  first.on_train_begin(stage.learn);
  for (const double value : {3, 1, 2}) stage.show(first, value);  // best 1, one epoch without improvement
  resumed.on_train_begin(stage.learn);
  resumed.load_state(first.save_state());
  CHECK(resumed.best() == 1);
  stage.show(resumed, 2);
  CHECK_FALSE(stage.learn.state.stop_training);
  stage.show(resumed, 2);
  CHECK(stage.learn.state.stop_training);
  other.on_train_begin(stage.learn);
  other.load_state(EarlyStopping(options).save_state());
  CHECK_THROWS_WITH_AS(other.load_state({}), doctest::Contains("no number 'best'"), Error);
}

TEST_CASE("TerminateOnNaN in f32 ends the run at the first such loss, without an error") {
  nn::Sequential model = small_mlp();
  const auto terminate = std::make_shared<TerminateOnNaN>();
  const auto trace = std::make_shared<Trace>();
  Learner learn(small_data(), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<Poison>(numbers(4, 5)), terminate, trace}, .silent = true});
  learn.fit(4);
  CHECK(terminate->terminated());
  CHECK(learn.state.iteration == 5);
  CHECK(std::count(trace->events.begin(), trace->events.end(), "valid batch_end") == 2);  // of the first epoch only
  CHECK(std::count(trace->events.begin(), trace->events.end(), "epoch_end") == 2);
  CHECK(learn.recorder().epochs.back().metrics.empty());
  const Tensors parameters = model.parameters();
  for (const Tensor& parameter : parameters)
    for (const double w : parameter.to_vector<double>()) CHECK(std::isfinite(w));

  learn.remove(terminate);  // without it, it is an error
  CHECK(contains(message_of([&] { learn.fit(4); }), "batch 1 of epoch 1"));
}

TEST_CASE("TerminateOnNaN in mixed precision bears what the loss scaler skips, and ends what stays") {
  for (const auto& [poisoned, steps] : std::vector<std::pair<std::set<std::int64_t>, std::int64_t>>{
           {numbers(1, 3), 12}, {numbers(1, 4), 4}, {{0, 2, 3, 5, 6, 8}, 12}}) {
    nn::Sequential model = small_mlp();
    const auto terminate = std::make_shared<TerminateOnNaN>(TerminateOnNaNOptions{.patience = 3});
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.callbacks = {std::make_shared<Poison>(poisoned), terminate}, .silent = true});
    learn.to_fp16();
    learn.fit(4);
    CHECK(learn.state.iteration == steps);
    CHECK(terminate->terminated() == (steps < 12));
    CHECK(learn.mixed_precision()->scaler().skipped == static_cast<std::int64_t>(poisoned.size()));
    for (const double w : masters(learn)) CHECK(std::isfinite(w));
  }
  nn::Sequential model = small_mlp();
  Learner learn(
      small_data(), model, nn::cross_entropy,
      {.callbacks = {std::make_shared<Poison>(numbers(0, 99)), std::make_shared<TerminateOnNaN>()}, .silent = true});
  learn.to_fp16();
  learn.fit(33);
  CHECK(learn.state.iteration == 10);
  CHECK_THROWS_WITH_AS(TerminateOnNaN({.patience = 0}), doctest::Contains("patience 0"), Error);
}

TEST_CASE("TerminateOnNaN remembers how long it has been in a resumed run") {
  Stage stage;
  stage.learn.to_fp16();
  TerminateOnNaN first({.patience = 3}), resumed({.patience = 3});
  const auto bad_batch = [&](Callback& callback) {
    callback.on_loss_known(stage.learn, {.loss = NAN});
    return stage.learn.state.stop_training;
  };
  first.on_train_begin(stage.learn);
  CHECK_FALSE(bad_batch(first));
  CHECK_FALSE(bad_batch(first));
  resumed.on_train_begin(stage.learn);
  resumed.load_state(first.save_state());
  CHECK(bad_batch(resumed));
}
