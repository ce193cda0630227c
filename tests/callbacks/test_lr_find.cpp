// lr_find: the curve, the suggestion, and that nothing is different afterwards.

#include "callbacks/lr_finder.h"

#include "callbacks/checkpoint.h"
#include "engine/io/safetensors.h"
#include "tests/files.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {
nn::Sequential net() {
  manual_seed(3);
  return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3));
}
data::Data shuffled() {
  return {data::DataLoader(classes_dataset(96), {.batch_size = 8, .shuffle = true, .seed = 4}),
          data::DataLoader(classes_dataset(24, 8, 3, 2), {.batch_size = 8})};
}
}  // namespace

TEST_CASE("lr_find restores everything, bit for bit, in every precision and wherever the run is") {
  const Folder folder;
  const std::string a = folder.path / "a", b = folder.path / "b";
  for (const int precision : {0, 1, 2})
    for (const bool trained : {false, true}) {
      nn::Sequential model = net(), other = net();
      Learner learn(shuffled(), model, nn::cross_entropy,
                    {.opt = optim::adamw(), .metrics = {accuracy}, .silent = true});
      Learner without(shuffled(), other, nn::cross_entropy,
                      {.opt = optim::adamw(), .metrics = {accuracy}, .silent = true});
      for (Learner* l : {&learn, &without}) {
        if (precision > 0) l->to_fp16({.max_noskip = 5, .flat_master = precision == 2});
        manual_seed(9);
        if (trained) l->fit_one_cycle(2, 1e-2);
      }
      const GeneratorState random = default_generator().state();
      learn.save(a);
      const std::vector<double> losses = learn.recorder().losses;
      const double smooth = learn.state.smooth_loss;
      const LrFindResult result = learn.lr_find({.num_it = 40});
      CHECK(result.lrs.size() > 10);
      learn.save(b);
      CHECK(contents(a) == contents(b));
      CHECK(learn.recorder().losses == losses);
      CHECK(learn.state.smooth_loss == smooth);
      CHECK(default_generator().state() == random);

      // What follows is the same as without it, the order of the data included.
      manual_seed(10);
      learn.fit_one_cycle(1, 1e-2);
      manual_seed(10);
      without.fit_one_cycle(1, 1e-2);
      CHECK(weights(model) == weights(other));
      CHECK(masters(learn) == masters(without));
    }
}

TEST_CASE("lr_find raises the rate by equal ratios and stops where the loss explodes") {
  for (const bool fp16 : {false, true}) {
    nn::Sequential model = net();
    Learner learn(shuffled(), model, nn::cross_entropy, {.opt = optim::sgd(), .silent = true});
    if (fp16) learn.to_fp16({.loss_scale = 256});
    const LrFindResult all = learn.lr_find({.start_lr = 1e-4, .end_lr = 1, .num_it = 41, .stop_div = false});
    REQUIRE(all.lrs.size() == 41);
    CHECK(all.losses.size() == 41);
    CHECK(all.lrs.front() == doctest::Approx(1e-4));
    CHECK(all.lrs[10] == doctest::Approx(1e-3));
    CHECK(all.lrs.back() == doctest::Approx(1));
    REQUIRE(all.suggestion);
    CHECK(*all.suggestion > 1e-3);  // the smallest rates move nothing
    CHECK(*all.suggestion < 1);

    const LrFindResult exploded = learn.lr_find({.start_lr = 1e-3, .end_lr = 1e5, .num_it = 200});
    CHECK(exploded.lrs.size() < 200);
    for (const double loss : exploded.losses) CHECK(std::isfinite(loss));
  }
}

TEST_CASE("lr_find leaves out what only watches, says what is wrong with its options, and survives errors") {
  struct Watcher : Trace {
    bool in_lr_find() const override { return false; }
  };
  struct Thrower : Callback {
    void on_batch_end(Learner& learn) override {
      if (learn.state.iteration == 3) fail("thrown");
    }
  };
  nn::Sequential model = net();
  const auto watcher = std::make_shared<Watcher>();
  const auto trace = std::make_shared<Trace>();
  Learner learn(shuffled(), model, nn::cross_entropy, {.callbacks = {watcher, trace}, .silent = true});
  learn.lr_find({.num_it = 5});
  CHECK(watcher->events.empty());
  CHECK(std::count(trace->events.begin(), trace->events.end(), "batch_end") == 5);
  CHECK(std::count(trace->events.begin(), trace->events.end(), "valid batch_end") == 0);

  const std::vector<double> before = weights(model);
  learn.add(std::make_shared<Thrower>());
  CHECK(message_of([&] { learn.lr_find(); }) == "thrown");
  CHECK(weights(model) == before);
  CHECK(learn.find<LRFinder>() == nullptr);
  CHECK(contains(message_of([&] { learn.lr_find({.start_lr = 0}); }), "expected 0 < start_lr < end_lr"));
  CHECK(contains(message_of([&] { learn.lr_find({.num_it = 1}); }), "num_it is 1"));
  Learner no_data({}, model, nn::cross_entropy, {.silent = true});
  CHECK(contains(message_of([&] { no_data.lr_find(); }), "the training data is empty"));
}
