#include <sstream>
#include <stdexcept>

#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {
using Events = std::vector<std::string>;

const Events training_batch = {"batch_begin", "loss_begin", "backward_begin", "backward_end", "step_end", "batch_end"};
const Events validation_batch = {"valid batch_begin", "valid loss_begin", "valid batch_end"};

void append(Events& to, const Events& events) { to.insert(to.end(), events.begin(), events.end()); }

struct Thrower : EveryEvent {
  explicit Thrower(std::string event) : event(std::move(event)) {}
  std::string event;
  int order() const override { return -50; }
  void on(Learner&, const std::string& here) override {
    if (event == here) throw std::runtime_error("thrown in " + event);
  }
};

struct OnBackwardBegin : Callback {
  explicit OnBackwardBegin(std::function<void(Learner&)> f) : f(std::move(f)) {}
  std::function<void(Learner&)> f;
  void on_backward_begin(Learner& learn) override { f(learn); }
};

struct OnBatchEnd : Callback {
  explicit OnBatchEnd(std::function<void(Learner&)> f, int at = 0) : f(std::move(f)), at(at) {}
  std::function<void(Learner&)> f;
  int at;
  int order() const override { return at; }
  void on_batch_end(Learner& learn) override { f(learn); }
};
}  // namespace

TEST_CASE("two epochs fire the events in the documented order, in f32 and f16") {
  Events expected = {"train_begin"};
  for (int epoch = 0; epoch < 2; ++epoch) {
    expected.push_back("epoch_begin");
    for (int batch = 0; batch < 3; ++batch) append(expected, training_batch);
    for (int batch = 0; batch < 2; ++batch) append(expected, validation_batch);
    expected.push_back("epoch_end");
  }
  expected.push_back("train_end");

  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    const auto trace = std::make_shared<Trace>();
    Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {trace}, .silent = true});
    if (fp16) learn.to_fp16();
    learn.fit(2);
    CHECK(trace->events == expected);
    CHECK(trace->error == nullptr);
  }
}

TEST_CASE("counters say where the run is, and the model is in the right mode") {
  nn::Sequential model = small_mlp();
  std::vector<std::vector<std::int64_t>> seen;
  const auto watch = std::make_shared<OnBatchEnd>([&](Learner& learn) {
    const TrainingState& s = learn.state;
    CHECK(learn.model().is_training() == s.train);
    CHECK(grad_enabled() == s.train);
    if (s.train) seen.push_back({s.epoch, s.n_epochs, s.iteration, s.num_batch});
  });
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {watch}, .silent = true});
  learn.fit(2);
  const std::vector<std::vector<std::int64_t>> expected = {{0, 2, 0, 0}, {0, 2, 1, 1}, {0, 2, 2, 2},
                                                           {1, 2, 3, 0}, {1, 2, 4, 1}, {1, 2, 5, 2}};
  CHECK(seen == expected);
  CHECK(learn.state.epoch == 2);
  CHECK(learn.state.iteration == 6);
}

TEST_CASE("every event of two epochs finds the state and the flags that it should") {
  // One line per event: where the run is, what there is to read, and the flags.
  struct Record : EveryEvent {
    explicit Record(bool last) : last(last) {}
    bool last;  // runs after all others, MixedPrecision included
    int order() const override { return last ? 2000 : -2000; }
    std::vector<std::string> lines;
    void on(Learner& learn, const std::string& event) override {
      const TrainingState& s = learn.state;
      const Tensor weight = learn.model().parameters()[0];
      lines.push_back(fmt::format(
          "{} epoch={}/{} iteration={} batch={} train={} model_trains={} graph={} grad={} flags={}{}{}{}{}{}", event,
          s.epoch, s.n_epochs, s.iteration, s.num_batch, s.train, learn.model().is_training(), grad_enabled(),
          weight.grad().defined(), s.skip_bwd, s.skip_step, s.skip_zero, s.stop_epoch, s.stop_training,
          s.skip_validate));
    }
  };
  // In the second training batch a gradient overflows: with mixed precision the step is left out.
  for (const bool fp16 : {false, true})
    for (const bool last : {false, true}) {
      std::vector<std::string> expected;
      std::string flags;
      const auto add = [&](const char* event, int epoch, int iteration, int batch, bool train, bool trains, bool graph,
                           bool grad) {
        expected.push_back(
            fmt::format("{} epoch={}/2 iteration={} batch={} train={} model_trains={} graph={} grad={} flags={}", event,
                        epoch, iteration, batch, train, trains, graph, grad, flags));
      };
      std::string none;
      for (int i = 0; i < 6; ++i) none += fmt::format("{}", false);
      flags = none;
      add("train_begin", 0, 0, 0, false, true, true, false);
      for (int epoch = 0; epoch < 2; ++epoch) {
        add("epoch_begin", epoch, 3 * epoch, 0, true, true, true, false);
        for (int b = 0; b < 3; ++b) {
          const int i = 3 * epoch + b;
          add("batch_begin", epoch, i, b, true, true, true, false);
          add("loss_begin", epoch, i, b, true, true, true, false);
          add("backward_begin", epoch, i, b, true, true, true, false);
          const std::string skipped = fmt::format("{}{}{}{}{}{}", false, true, false, false, false, false);
          add("backward_end", epoch, i, b, true, true, true, true);
          if (fp16 && i == 1) flags = skipped;  // which the step itself decided
          add("step_end", epoch, i, b, true, true, true, true);
          add("batch_end", epoch, i, b, true, true, true, false);
          flags = none;
        }
        for (int b = 0; b < 2; ++b)
          for (const char* event : {"valid batch_begin", "valid loss_begin", "valid batch_end"})
            add(event, epoch, 3 * epoch + 3, 3, false, false, false, false);
        add("epoch_end", epoch, 3 * epoch + 3, 3, true, true, true, false);
      }
      add("train_end", 2, 6, 3, true, true, true, false);

      nn::Sequential model = small_mlp();
      const auto record = std::make_shared<Record>(last);
      const auto overflow = std::make_shared<Overflow>(fp16 ? std::set<std::int64_t>{1} : std::set<std::int64_t>{});
      Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {record, overflow}, .silent = true});
      if (fp16) learn.to_fp16();
      learn.fit(2);
      REQUIRE(record->lines.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(record->lines[i] == expected[i]);
    }
}

TEST_CASE("callbacks run by order, equal ones as they were added") {
  nn::Sequential model = small_mlp();
  std::string order;
  Learner learn(small_data(48), model, nn::cross_entropy, {.silent = true});
  for (const auto& [name, at] : std::vector<std::pair<char, int>>{{'c', 0}, {'e', 5}, {'d', 0}, {'a', -20}, {'b', -20}})
    learn.add(std::make_shared<OnBatchEnd>(
        [&order, name = name](Learner& l) {
          if (l.state.train) order += name;
        },
        at));
  learn.fit(1);
  CHECK(order == "abcde");
}

TEST_CASE("an exception in any event ends the run after on_train_end, and the next run is as good as new") {
  for (const bool fp16 : {false, true}) {
    for (const char* event :
         {"train_begin", "epoch_begin", "batch_begin", "loss_begin", "backward_begin", "backward_end", "step_end",
          "batch_end", "valid batch_begin", "valid loss_begin", "valid batch_end", "epoch_end", "train_end"}) {
      CAPTURE(event);
      nn::Sequential model = small_mlp();
      const auto trace = std::make_shared<Trace>();
      const auto thrower = std::make_shared<Thrower>(event);
      Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {thrower, trace}, .silent = true});
      if (fp16) learn.to_fp16();
      CHECK(message_of([&] { learn.fit_one_cycle(2, 1e-2); }) == "thrown in " + std::string(event));
      CHECK(trace->events.back() == "train_end");
      CHECK(trace->error != nullptr);
      CHECK(std::count(trace->events.begin(), trace->events.end(), "train_end") == 1);
      for (const Tensor& parameter : model.parameters()) CHECK_FALSE(parameter.grad().defined());
      CHECK(grad_enabled());
      CHECK(learn.optimizer().groups()[0].momentum == 0.9);  // the schedule was taken back

      learn.remove(thrower);
      learn.fit(3, 1e-2);
      CHECK(learn.find<OneCycle>() == nullptr);
      CHECK(learn.state.epoch == 3);
      CHECK(learn.recorder().losses.size() == 9);
      CHECK(learn.recorder().losses.back() < learn.recorder().losses.front());
    }
  }
}

TEST_CASE("an exception of the model, the loss or the data arrives too") {
  const auto trace = std::make_shared<Trace>();
  nn::Sequential model = small_mlp();
  const LossFn loss = [](const Tensor&, const Tensor&) -> Tensor { fail("no loss today"); };
  Learner learn(small_data(), model, loss, {.callbacks = {trace}, .silent = true});
  CHECK(message_of([&] { learn.fit(1); }) == "no loss today");
  CHECK(trace->events.back() == "train_end");
}

TEST_CASE("skip_bwd, skip_step and skip_zero leave out what they say, for one batch") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.opt = optim::sgd({.lr = 0.1}), .silent = true});
  const std::vector<double> before = weights(model);
  const auto parameter = [&] { return learn.optimizer().groups()[0].entries[0].param; };

  SUBCASE("skip_bwd: no gradients, so the step moves nothing") {
    learn.add(std::make_shared<OnBackwardBegin>([](Learner& l) { l.state.skip_bwd = true; }));
    learn.fit(1);
    CHECK(parameter().to_vector<double>() == std::vector<double>(before.begin(), before.begin() + parameter().numel()));
  }
  SUBCASE("skip_step") {
    learn.add(std::make_shared<OnBackwardBegin>([](Learner& l) { l.state.skip_step = true; }));
    learn.fit(1);
    CHECK(parameter().to_vector<double>() == std::vector<double>(before.begin(), before.begin() + parameter().numel()));
  }
  SUBCASE("skip_zero keeps the gradients for the next batch") {
    bool kept = false;
    learn.add(std::make_shared<OnBackwardBegin>([&](Learner& l) {
      kept = kept || parameter().grad().defined();
      l.state.skip_zero = l.state.num_batch == 0;
    }));
    learn.fit(1);
    CHECK(kept);
  }
  SUBCASE("the flags are false again at the next batch") {
    int steps = 0;
    learn.add(std::make_shared<OnBackwardBegin>([&](Learner& l) {
      CHECK_FALSE(l.state.skip_step);
      l.state.skip_step = true;
      ++steps;
    }));
    learn.fit(1);
    CHECK(steps == 3);
  }
}

TEST_CASE("stop_epoch leaves the epoch, stop_training the run after validation, skip_validate validation") {
  nn::Sequential model = small_mlp();
  const auto trace = std::make_shared<Trace>();
  Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {trace}, .silent = true});
  const auto count = [&](const std::string& event) {
    return std::count(trace->events.begin(), trace->events.end(), event);
  };
  SUBCASE("stop_epoch") {
    learn.add(std::make_shared<OnBatchEnd>([](Learner& l) { l.state.stop_epoch = l.state.train; }));
    learn.fit(2);
    CHECK(count("batch_end") == 2);
    CHECK(count("valid batch_end") == 4);
    CHECK(count("epoch_end") == 2);
  }
  SUBCASE("stop_training") {
    learn.add(std::make_shared<OnBatchEnd>([](Learner& l) { l.state.stop_training = true; }));
    learn.fit(5);
    CHECK(count("batch_end") == 3);
    CHECK(count("epoch_end") == 1);
    CHECK(learn.state.epoch == 1);
  }
  SUBCASE("skip_validate") {
    struct Skip : Callback {
      void on_train_begin(Learner& l) override { l.state.skip_validate = true; }
    };
    learn.add(std::make_shared<Skip>());
    learn.fit(1);
    CHECK(count("valid batch_end") == 0);
    CHECK(learn.recorder().epochs[0].metrics.empty());
  }
}

TEST_CASE("what callbacks replace is what the loop goes on with") {
  struct Replace : Callback {
    void on_batch_begin(Learner& l) override {
      l.state.last_input = {zeros({2, 8})};
      l.state.last_target = {zeros({2}, i64)};
    }
    void on_loss_begin(Learner& l) override {
      CHECK(l.state.last_output.shape() == Shape{2, 3});
      l.state.last_output = l.state.last_output * 0.0;
    }
    void on_backward_begin(Learner& l) override {
      CHECK(l.state.last_loss.item() == doctest::Approx(std::log(3.0)));
      l.state.last_loss = l.state.last_loss * 2.0;
    }
    void on_batch_end(Learner& l) override {
      if (l.state.train) CHECK(l.state.last_loss.item() == doctest::Approx(2 * std::log(3.0)));
    }
  };
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.callbacks = {std::make_shared<Replace>()}, .silent = true});
    if (fp16) learn.to_fp16();
    learn.fit(1);
    CHECK(learn.recorder().losses[0] == doctest::Approx(std::log(3.0)));
    CHECK(learn.state.smooth_loss == doctest::Approx(std::log(3.0)));
  }
}

TEST_CASE("validate, predict and get_preds look without changing anything") {
  nn::Sequential model = small_mlp();
  data::Data data = small_data();
  Learner learn(data, model, nn::cross_entropy, {.metrics = {accuracy, error_rate}, .silent = true});
  for (const bool fp16 : {false, true}) {
    if (fp16) learn.to_fp16();
    learn.fit(8, 1e-2);
    const std::vector<double> before = weights(model);
    const std::vector<double> result = learn.validate();
    REQUIRE(result.size() == 3);
    CHECK(result == learn.recorder().epochs.back().metrics);
    CHECK(result[1] > 0.9);
    CHECK(result[1] + result[2] == doctest::Approx(1));

    const auto [outputs, targets] = learn.get_preds();
    CHECK(outputs.shape() == Shape{24, 3});
    CHECK(outputs.dtype() == f32);
    CHECK(targets.shape() == Shape{24});
    const data::Batch first = *data.valid.begin();
    const Tensor output = learn.predict(first.inputs[0]);
    CHECK_FALSE(output.requires_grad());
    CHECK(output.to_vector<float>() == outputs.narrow(0, 0, 16).to_vector<float>());
    CHECK(weights(model) == before);
    CHECK(learn.validate(data.train)[0] == doctest::Approx(learn.validate(data.train)[0]));
  }
}

TEST_CASE("validation from inside a training batch leaves the model training") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  bool done = false;
  learn.add(std::make_shared<OnBatchEnd>([&](Learner& l) {
    if (!l.state.train || done) return;
    done = true;
    l.validate();
    CHECK(l.state.train);
    CHECK(l.model().is_training());
  }));
  learn.fit(1);
  CHECK(done);
}

TEST_CASE("zero epochs are fine, training without data is an error") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.fit(0);
  CHECK_THROWS_AS(learn.fit(-1), Error);
  const data::DataLoader empty(data::TensorDataset(zeros({0, 8}), zeros({0}, i64)), {.batch_size = 4});
  for (const data::Data& nothing : {data::Data{}, data::Data{empty, empty}}) {
    Learner no_data(nothing, model, nn::cross_entropy, {.silent = true});
    no_data.fit(0);
    CHECK_THROWS_WITH_AS(no_data.fit(2), doctest::Contains("the training data is empty"), Error);
    CHECK_THROWS_WITH_AS(no_data.fit_one_cycle(1, 1e-3), doctest::Contains("the training data is empty"), Error);
  }
  Learner no_data({}, model, nn::cross_entropy, {.silent = true});
  CHECK(no_data.validate().empty());
  CHECK_THROWS_AS(no_data.get_preds(), Error);
}

TEST_CASE("f32 training stops at a loss that is not finite, and says where it came from") {
  const auto stop = std::make_shared<OnBatchEnd>([](Learner& l) { l.state.stop_training = l.state.stop_epoch = true; });
  for (const bool bad_input : {true, false}) {
    std::vector<float> x(40, 1.0f);
    std::vector<float> y(10, 0.0f);
    (bad_input ? x[21] : y[5]) = NAN;
    data::DataLoader loader(data::TensorDataset(from_vector(x, {10, 4}), from_vector(y, {10, 1})),
                            {.batch_size = 5, .check_finite = false});
    manual_seed(1);
    nn::Linear model(4, 1);
    Learner learn({loader, {}}, model, nn::mse_loss, {.silent = true});
    const std::string message = message_of([&] { learn.fit(1); });
    CHECK(contains(message, bad_input ? "input 0 of batch 1 of epoch 0" : "the loss is nan in batch 1 of epoch 0"));
    for (const double w : weights(model)) CHECK(std::isfinite(w));

    learn.add(stop);  // a callback that deals with it keeps the error away
    learn.fit(1);
    CHECK(std::isfinite(weights(model)[0]));
  }
}

TEST_CASE("NaN in data is an Error that names the item, in both precisions") {
  std::vector<float> x(40, 1.0f);
  x[21] = NAN;
  data::DataLoader loader(data::TensorDataset(from_vector(x, {10, 4}), zeros({10, 1})), {.batch_size = 5});
  for (const bool fp16 : {false, true}) {
    nn::Linear model(4, 1);
    Learner learn({loader, {}}, model, nn::mse_loss, {.silent = true});
    if (fp16) learn.to_fp16();
    CHECK(contains(message_of([&] { learn.fit(1); }), "item 5"));
  }
}
