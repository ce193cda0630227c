// Metrics, Recorder and what is printed.

#include <iostream>
#include <sstream>

#include "callbacks/progress.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

TEST_CASE("metrics of classes") {
  const Tensor scores = tensor({{3, 2, 1}, {1, 3, 2}, {1, 3, 2}, {0, 0, 0}});
  const Tensor target = from_vector(std::vector<std::int64_t>{0, 2, 0, 1});
  for (const DType dtype : {f32, f16, f64}) {
    const Tensor output = scores.to(dtype);
    CHECK(accuracy.value(output, target) == 0.25);
    CHECK(error_rate.value(output, target) == 0.75);
    CHECK(top_k_accuracy(1).value(output, target) == 0.25);  // equal scores: the first leads, as for accuracy
    CHECK(top_k_accuracy(2).value(output, target) == 0.75);
    CHECK(top_k_accuracy(3).value(output, target) == 1);
  }
  CHECK(top_k_accuracy(3).name == "top_3_accuracy");
  CHECK(top_k_accuracy(1).value(full({2, 3}, NAN), zeros({2}, i64)) == 0);
  CHECK_THROWS_AS(top_k_accuracy(0), Error);
  CHECK_THROWS_AS(top_k_accuracy(4).value(scores, target), Error);
  CHECK_THROWS_AS(accuracy.value(scores, target.to(f32)), Error);
  CHECK_THROWS_AS(accuracy.value(scores, zeros({3}, i64)), Error);

  const Tensor images = scores.reshape({2, 3, 2});  // a class per position
  CHECK(accuracy.value(images, zeros({2, 2}, i64)) == 0.75);
}

TEST_CASE("mse is computed in f32 and does not broadcast") {
  CHECK(mse.value(full({2, 1}, 300, f16), zeros({2, 1})) == 90000);
  CHECK_THROWS_AS(mse.value(ones({2, 1}), ones({2})), Error);
}

TEST_CASE("averages weigh samples, not batches") {
  const std::vector<Metric> metrics = {{"first", [](const Tensor& output, const Tensor&) { return output.item(); }}};
  MetricAverages averages(metrics);
  CHECK(averages.values().empty());
  averages.add(1, Tensor(4.0), zeros({3}));
  averages.add(5, Tensor(8.0), zeros({1}));
  CHECK(averages.values() == std::vector<double>{2, 5});
}

TEST_CASE("the smoothed loss is fastai's debiased average") {
  Smoother smoother;
  double average = 0;
  for (int i = 1; i <= 5; ++i) {
    average = 0.98 * average + 0.02 * i;
    CHECK(smoother.add(i) == doctest::Approx(average / (1 - std::pow(0.98, i))));
  }
  const double before = average / (1 - std::pow(0.98, 5));
  CHECK(smoother.add(inf) == doctest::Approx(before));  // of a batch that is skipped
  CHECK(std::isnan(Smoother().add(NAN)));
}

TEST_CASE("rates and weight decay: what fit is given, else the Learner's, else the optimizer's") {
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy,
                {.opt = optim::adamw({.lr = 0.25, .weight_decay = 0.5}), .silent = true});
  const optim::ParamGroup& group = learn.optimizer().groups()[0];
  learn.fit(0, 1e-3, 0.125);
  CHECK(group.lr == 1e-3);
  CHECK(group.weight_decay == 0.125);
  learn.fit(0);
  CHECK(group.lr == 0.25);
  CHECK(group.weight_decay == 0.5);
  Learner other(small_data(), model, nn::cross_entropy, {.lr = 2e-3, .wd = 0, .silent = true});
  other.fit(0);
  CHECK(other.optimizer().groups()[0].lr == 2e-3);
  CHECK(other.optimizer().groups()[0].weight_decay == 0);
  CHECK_THROWS_AS(other.fit(1, 1e-3, -1.0), Error);
}

TEST_CASE("the Recorder keeps losses and metrics of the last run") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.metrics = {accuracy, top_k_accuracy(2)}, .silent = true});
    if (fp16) learn.to_fp16();
    learn.fit(1);
    learn.fit(2);
    const Recorder& r = learn.recorder();
    CHECK(r.losses.size() == 6);
    CHECK(r.lrs == std::vector<double>(6, 1e-3));
    CHECK(r.moms == std::vector<double>(6, 0.9));
    REQUIRE(r.epochs.size() == 2);
    CHECK(r.epochs[1].metrics.size() == 3);
    CHECK(r.epochs[1].metrics == learn.state.last_metrics);
    CHECK(r.epochs[1].train_loss == learn.state.smooth_loss);
    CHECK(r.epochs[0].seconds >= 0);
    for (const double loss : r.losses) CHECK(loss < 10);
  }
}

TEST_CASE("the epoch table is aligned, and there is no bar where nobody looks") {
  nn::Sequential model = small_mlp();
  std::ostringstream out;
  Learner learn(small_data(), model, nn::cross_entropy,
                {.metrics = {accuracy}, .callbacks = {std::make_shared<Progress>(out, false)}, .silent = true});
  learn.fit(2);
  std::istringstream lines(out.str());
  std::string header, row;
  std::getline(lines, header);
  CHECK(header == "epoch     train_loss  valid_loss  accuracy  time");
  for (int epoch = 0; epoch < 2; ++epoch) {
    REQUIRE(std::getline(lines, row));
    CHECK(row.substr(0, 10) == std::to_string(epoch) + "         ");
    CHECK(std::stod(row.substr(10, 12)) == doctest::Approx(learn.recorder().epochs[epoch].train_loss).epsilon(1e-4));
    CHECK(std::stod(row.substr(22, 12)) == doctest::Approx(learn.recorder().epochs[epoch].metrics[0]).epsilon(1e-4));
    CHECK(std::stod(row.substr(34, 10)) == doctest::Approx(learn.recorder().epochs[epoch].metrics[1]).epsilon(1e-4));
    CHECK(row.substr(44) == "00:00");
  }
  CHECK_FALSE(std::getline(lines, row));
  CHECK_FALSE(contains(out.str(), "\r"));
}

TEST_CASE("the bar shows batches, loss and time left, and is gone before the table's next line") {
  struct Slow : Callback {
    void on_batch_begin(Learner&) override {
      const double start = seconds_now();
      while (seconds_now() < start + 0.11) {
      }
    }
  };
  nn::Sequential model = small_mlp();
  std::ostringstream out;
  Learner learn(small_data(24), model, nn::cross_entropy,
                {.callbacks = {std::make_shared<Slow>(), std::make_shared<Progress>(out, true)}, .silent = true});
  learn.fit(1);
  CHECK(contains(out.str(), "1/3  loss "));
  CHECK(contains(out.str(), " left"));
  CHECK(contains(out.str(), "\r\x1b[K0   "));
}

TEST_CASE("what has no value in the table is a dash") {
  nn::Sequential model = small_mlp();
  std::ostringstream out;
  Learner learn({small_data().train, {}}, model, nn::cross_entropy,
                {.metrics = {accuracy}, .callbacks = {std::make_shared<Progress>(out, false)}, .silent = true});
  learn.fit(1);
  CHECK(contains(out.str(), "-           -         00:00"));
}

TEST_CASE("silent prints nothing, and otherwise the table goes to standard output") {
  for (const bool silent : {true, false}) {
    std::ostringstream captured;
    std::streambuf* before = std::cout.rdbuf(captured.rdbuf());
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.silent = silent});
    learn.to_fp16();
    learn.fit(1);
    learn.validate();
    std::cout.rdbuf(before);
    CHECK(captured.str().empty() == silent);
  }
}

TEST_CASE("seconds as a clock shows them") {
  CHECK(format_seconds(0) == "00:00");
  CHECK(format_seconds(65.7) == "01:05");
  CHECK(format_seconds(3723) == "1:02:03");
}
