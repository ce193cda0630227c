// What a classifier gets wrong, and results as text.

#include "callbacks/interpret.h"

#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

// Six samples of three classes. Predicted: 0 1 1 2 2 0.
ClassificationInterpretation sample() {
  const Tensor scores = tensor({{5, 1, 0}, {1, 2, 0}, {0, 9, 1}, {0, 0, 3}, {0, 1, 2}, {1, 0, 0}});
  const Tensor targets = from_vector(std::vector<std::int64_t>{0, 0, 1, 2, 1, 1});
  return {scores, targets, {0.1, 0.6, 0.2, 0.3, 0.9, NAN}, {"cat", "dog", "eel"}};
}

}  // namespace

TEST_CASE("the confusion matrix counts actual by predicted") {
  const Tensor counts = sample().confusion_matrix();
  CHECK(counts.shape() == Shape{3, 3});
  CHECK(counts.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1, 0, 1, 1, 1, 0, 0, 1});
  CHECK(sample().confusion_table() ==
        "actual \\ predicted  cat  dog  eel\n"
        "cat                 1    1    0\n"
        "dog                 1    1    1\n"
        "eel                 0    0    1\n");
}

TEST_CASE("most_confused lists what is off the diagonal, the most frequent first") {
  using Confusion = ClassificationInterpretation::Confusion;
  CHECK(sample().most_confused() == std::vector<Confusion>{{"cat", "dog", 1}, {"dog", "cat", 1}, {"dog", "eel", 1}});
  CHECK(sample().most_confused(2).empty());
  const Tensor scores = tensor({{1, 0}, {1, 0}, {0, 1}, {0, 1}});
  const ClassificationInterpretation two(scores, from_vector(std::vector<std::int64_t>{1, 1, 0, 1}), {0, 0, 0, 0});
  CHECK(two.most_confused() == std::vector<Confusion>{{"1", "0", 2}, {"0", "1", 1}});
}

TEST_CASE("top_losses sorts the samples; NaN is the largest") {
  const auto top = sample().top_losses(3);
  REQUIRE(top.size() == 3);
  CHECK(top[0].index == 5);
  CHECK(top[1].index == 4);
  CHECK(top[1].actual == "dog");
  CHECK(top[1].predicted == "eel");
  CHECK(top[1].probability == doctest::Approx(std::exp(1) / (1 + std::exp(1) + std::exp(2))));
  CHECK(top[2].index == 1);
  CHECK(sample().top_losses(2, false)[0].index == 0);
  CHECK(sample().top_losses(100).size() == 6);
  CHECK_THROWS_AS(sample().top_losses(-1), Error);
}

TEST_CASE("what does not fit together is an error") {
  const Tensor scores = zeros({2, 3}), targets = zeros({2}, i64);
  CHECK_THROWS_WITH_AS(ClassificationInterpretation(scores, zeros({3}, i64), {0, 0}), doctest::Contains("[2, 3]"),
                       Error);
  CHECK_THROWS_AS(ClassificationInterpretation(scores, zeros({2}), {0, 0}), Error);
  CHECK_THROWS_AS(ClassificationInterpretation(scores, targets, {0}), Error);
  CHECK_THROWS_WITH_AS(ClassificationInterpretation(scores, targets, {0, 0}, {"a"}), doctest::Contains("1 names for 3"),
                       Error);
  CHECK_THROWS_WITH_AS(ClassificationInterpretation(scores, full({2}, 3, i64), {0, 0}), doctest::Contains("class 3"),
                       Error);
}

TEST_CASE("a Learner interprets its validation data and shows results, in both precisions") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp();
    Learner learn(small_data(), model, nn::cross_entropy, {.metrics = {accuracy}, .silent = true});
    if (fp16) learn.to_fp16();
    learn.fit(8, 1e-2);
    const double accuracy = learn.state.last_metrics[1];
    const ClassificationInterpretation result = learn.interpret({"a", "b", "c"});
    const std::vector<std::int64_t> counts = result.confusion_matrix().to_vector<std::int64_t>();
    CHECK((counts[0] + counts[4] + counts[8]) / 24.0 == doctest::Approx(accuracy));
    double mean = 0;
    for (const auto& s : result.top_losses(24)) {
      mean += s.loss / 24;
      CHECK(s.loss == doctest::Approx(-std::log(s.probability)).epsilon(1e-5));
    }
    CHECK(mean == doctest::Approx(learn.state.last_metrics[0]).epsilon(1e-5));
    CHECK(contains(result.str(), "of 24 are right"));

    const std::string table = learn.show_results(3, {"a", "b", "c"});
    CHECK(std::count(table.begin(), table.end(), '\n') == 4);
    CHECK(table.starts_with("item  target  prediction"));
    CHECK(contains(table, "0     a       a (0."));
    CHECK(contains(learn.show_results(1), "0     0       0 (0."));
    CHECK_THROWS_AS(learn.show_results(0), Error);
    CHECK_THROWS_WITH_AS(learn.show_results(1, {"a"}), doctest::Contains("1 names for 3"), Error);

    data::DataLoader other(classes_dataset(7), {.batch_size = 4});
    CHECK(learn.get_preds(other).first.shape() == Shape{7, 3});
  }
}

TEST_CASE("results of a regression are numbers, and there is nothing to interpret") {
  nn::Linear model(2, 1);
  const data::DataLoader loader(data::TensorDataset(ones({4, 2}), full({4, 1}, 0.5)), {.batch_size = 2});
  Learner learn({loader, loader}, model, nn::mse_loss, {.silent = true});
  model.weight.detach().fill_(1);
  model.bias.detach().fill_(0.25);
  CHECK(learn.show_results(1) == "item  target  prediction  loss\n0     0.5     2.25        3.0625\n");
  CHECK_THROWS_WITH_AS(learn.interpret(), doctest::Contains("this is for classifiers"), Error);
  Learner no_data({loader, {}}, model, nn::mse_loss, {.silent = true});
  CHECK_THROWS_WITH_AS(no_data.show_results(), doctest::Contains("no validation data"), Error);
}
