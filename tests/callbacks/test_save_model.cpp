// SaveModel: which epochs it saves, that the best one comes back, and that a run goes on from its file.

#include "callbacks/save_model.h"

#include "callbacks/checkpoint.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;
using Every = SaveModelOptions::Every;

namespace {

/// A metric that goes through these values, epoch by epoch.
Metric scripted(std::vector<double> values, int batches_per_validation) {
  const auto call = std::make_shared<std::size_t>(0);
  return {"script", [=](const Tensor&, const Tensor&) {
            return values.at((*call)++ / static_cast<std::size_t>(batches_per_validation));
          }};
}

int epoch_of(const std::string& path) { return position_of(Checkpoint{load_safetensors(path)}).epoch; }

}  // namespace

TEST_CASE("SaveModel keeps the best epoch and loads it at the end, in both precisions") {
  const Folder folder;
  const std::string path = folder.path / "best.safetensors";
  for (const bool fp16 : {false, true})
    for (const bool load_best : {true, false}) {
      nn::Sequential model = small_mlp();
      std::vector<std::vector<double>> by_epoch;
      struct Watch : Callback {
        std::vector<std::vector<double>>& seen;
        explicit Watch(std::vector<std::vector<double>>& seen) : seen(seen) {}
        void on_epoch_end(Learner& learn) override { seen.push_back(weights(learn.model())); }
      };
      Learner learn(
          small_data(), model, nn::cross_entropy,
          {.metrics = {scripted({1, 3, 2, NAN, 3}, 2)},
           .callbacks = {std::make_shared<Watch>(by_epoch),
                         std::make_shared<SaveModel>(SaveModelOptions{
                             .path = path, .monitor = "script", .mode = TrackMode::max, .load_best = load_best})},
           .silent = true});
      if (fp16) learn.to_fp16();
      learn.fit_one_cycle(5, 1e-2);
      CHECK(epoch_of(path) == 2);  // saved at the end of epoch 1, to go on with epoch 2
      CHECK(weights(model) == by_epoch[load_best ? 1 : 4]);
      CHECK(learn.optimizer().groups()[0].entries[0].steps() ==
            (load_best ? 6 : 15) - (fp16 ? learn.mixed_precision()->scaler().skipped : 0));
      CHECK(learn.optimizer().groups()[0].momentum == 0.9);
    }
}

TEST_CASE("SaveModel saves each epoch, into one file or into one each") {
  const Folder folder;
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  learn.add(std::make_shared<SaveModel>(SaveModelOptions{.path = folder.path / "m{}", .every = Every::epoch}));
  learn.add(std::make_shared<SaveModel>(SaveModelOptions{.path = folder.path / "last", .every = Every::epoch}));
  learn.fit(3);
  CHECK(folder.files() == 4);
  for (int epoch = 0; epoch < 3; ++epoch) CHECK(epoch_of(folder.path / fmt::format("m{}", epoch)) == epoch + 1);
  CHECK(epoch_of(folder.path / "last") == 3);
}

TEST_CASE("SaveModel saves after every so many batches, and a run goes on from there with the same bits") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = small_mlp(), other = small_mlp(77);
    Learner learn(small_data(), model, nn::cross_entropy, {.silent = true}),
        resumed(small_data(), other, nn::cross_entropy, {.silent = true});
    for (Learner* l : {&learn, &resumed}) {
      if (fp16) l->to_fp16();
      l->add(std::make_shared<SaveModel>(SaveModelOptions{.path = path, .every = Every::batches, .batches = 5}));
    }
    learn.fit_one_cycle(3, 1e-2);  // 9 batches
    CHECK(position_of(Checkpoint{load_safetensors(path)}).iteration == 5);
    resumed.resume(path);
    resumed.fit_one_cycle(3, 1e-2);
    CHECK(weights(model) == weights(other));
    CHECK(masters(learn) == masters(resumed));
  }
}

TEST_CASE("SaveModel: bad options, a folder that is not there, and an error in the run") {
  CHECK_THROWS_WITH_AS(SaveModel({.path = ""}), doctest::Contains("the path is empty"), Error);
  CHECK_THROWS_WITH_AS(SaveModel({.path = "m{}"}), doctest::Contains("leave the {} out"), Error);
  CHECK_THROWS_WITH_AS(SaveModel({.every = Every::batches, .batches = 0}), doctest::Contains("every 0 batches"), Error);
  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  const auto save = std::make_shared<SaveModel>(SaveModelOptions{.path = "/nowhere/best"});
  learn.add(save);
  CHECK(contains(message_of([&] { learn.fit(1); }), "/nowhere/best"));
  learn.remove(save);
  learn.add(std::make_shared<SaveModel>(SaveModelOptions{.monitor = "beauty"}));
  CHECK(contains(message_of([&] { learn.fit(1); }), "there is no 'beauty' to monitor"));
}
