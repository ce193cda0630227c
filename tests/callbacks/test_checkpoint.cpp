// Checkpoints: a run that is resumed anywhere ends with the bits of one that was never interrupted, in both precisions,
// and a file that does not fit changes nothing.

#include "callbacks/checkpoint.h"

#include "callbacks/gradients.h"
#include "checkpoints.h"
#include "engine/io/safetensors.h"
#include "tests/files.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

nn::Sequential make_model(std::uint64_t seed) {
  manual_seed(seed);
  return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.3), nn::Linear(16, 3));
}

/// A Learner whose training has everything that a checkpoint must carry: dropout, batchnorm, shuffled data that is loaded
/// ahead, momentum.
struct Trainee {
  explicit Trainee(Precision precision, const optim::OptimizerFactory& opt = optim::adamw(), std::uint64_t seed = 3)
      : model(make_model(seed)),
        learn({data::DataLoader(classes_dataset(44), {.batch_size = 8, .shuffle = true, .seed = 5}),
               data::DataLoader(classes_dataset(12, 8, 3, 2), {.batch_size = 6})},
              model, nn::cross_entropy, {.opt = opt, .metrics = {accuracy}, .silent = true}) {
    // max_noskip makes the scale move within the run.
    if (precision != Precision::f32) learn.to_fp16({.max_noskip = 4, .flat_master = precision == Precision::f16_flat});
  }
  void run() { learn.fit_one_cycle(3, 0.05); }  // 3 epochs of 6 batches

  nn::Sequential model;
  Learner learn;
};

const std::vector<std::pair<std::string, std::int64_t>> moments = {
    {"train_begin", 0}, {"epoch_begin", 0},      {"batch_end", 0}, {"batch_end", 2},  {"batch_end", 5},
    {"epoch_begin", 6}, {"valid batch_end", 12}, {"epoch_end", 6}, {"batch_end", 10}, {"epoch_end", 18}};

}  // namespace

TEST_CASE("a run that is resumed anywhere ends with the bits of one that was never interrupted") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::f16_flat})
    for (const auto& opt : {optim::adamw(), optim::sgd({.momentum = 0.9})}) {
      Trainee plain(precision, opt);
      plain.run();
      const auto expected = outcome(plain.learn);
      for (const auto& moment : moments) {
        CAPTURE(static_cast<int>(precision));
        CAPTURE(moment.first);
        CAPTURE(moment.second);
        std::filesystem::remove(path);
        Trainee saved(precision, opt);
        const auto saver = std::make_shared<SaveAt>(path, moment.first, moment.second);
        saved.learn.add(saver);
        saved.run();
        check_same(expected, outcome(saved.learn));  // saving changes nothing
        REQUIRE(std::filesystem::exists(path));

        Trainee resumed(precision, opt, 77);  // other weights, other random numbers
        resumed.learn.resume(path);
        resumed.run();
        check_same(expected, outcome(resumed.learn));
      }
    }
}

TEST_CASE("gradients that are being accumulated are part of a checkpoint") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const Precision precision : {Precision::f32, Precision::f16_flat})
    for (const std::int64_t at : {0, 1, 7}) {
      const auto train = [&](Trainee& trainee) {
        trainee.learn.add(std::make_shared<AccumulateScheduler>(4));
        trainee.run();
        return outcome(trainee.learn);
      };
      Trainee saved(precision), resumed(precision, optim::adamw(), 77);
      saved.learn.add(std::make_shared<SaveAt>(path, "batch_end", at));
      const auto expected = train(saved);
      CHECK(load_safetensors(path).tensors.contains("gradient/0.weight"));
      resumed.learn.resume(path);
      check_same(expected, train(resumed));
    }
}

TEST_CASE("a run that a callback has stopped stays stopped") {
  struct Stop : Callback {
    void on_epoch_end(Learner& learn) override { learn.state.stop_training = learn.state.epoch == 1; }
  };
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  Trainee saved(Precision::f16);
  saved.learn.add(std::make_shared<Stop>());
  saved.learn.add(std::make_shared<SaveAt>(path, "epoch_end", 12));
  saved.run();
  Trainee resumed(Precision::f16, optim::adamw(), 77);
  resumed.learn.resume(path);
  resumed.run();
  CHECK(weights(resumed.model) == weights(saved.model));
  CHECK(masters(resumed.learn) == masters(saved.learn));
}

TEST_CASE("a checkpoint of either precision loads into the other, masters and moments included") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const bool from_fp16 : {false, true}) {
    const Precision from = from_fp16 ? Precision::f16 : Precision::f32,
                    to = from_fp16 ? Precision::f32 : Precision::f16;
    Trainee saved(from);
    saved.run();
    saved.learn.save(path);
    Trainee loaded(to, optim::adamw(), 77);
    loaded.learn.load(path);
    CHECK(loaded.model.dtype() == (from_fp16 ? f32 : f16));
    CHECK(masters(loaded.learn) == masters(saved.learn));  // of an f32 run: its weights
    const SavedState a = saved.learn.optimizer().state_dict(), b = loaded.learn.optimizer().state_dict();
    CHECK(a.numbers == b.numbers);
    for (const auto& [name, tensor] : a.tensors)
      if (!name.ends_with("master")) CHECK(tensor.to_vector<float>() == b.tensors.at(name).to_vector<float>());
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(loaded.model.parameters()[i].to_vector<float>() == saved.learn.optimizer()
                                                                   .groups()[0]
                                                                   .entries[i]
                                                                   .master.to(loaded.model.parameters()[i].dtype())
                                                                   .to_vector<float>());
    loaded.run();
    for (const double w : masters(loaded.learn)) CHECK(std::isfinite(w));

    // The interrupted run itself goes on in the other precision.
    Trainee begun(from), other(to, optim::adamw(), 77);
    begun.learn.add(std::make_shared<SaveAt>(path, "batch_end", 8));
    begun.run();
    other.learn.resume(path);
    other.run();
    CHECK(other.learn.state.iteration == 18);
    const std::int64_t steps = other.learn.optimizer().groups()[0].entries[0].steps();
    CHECK(steps > 14);  // but for the few that overflowed
    CHECK(steps <= 18);
  }
}

TEST_CASE("saving what was loaded gives the same file") {
  const Folder folder;
  const std::string a = folder.path / "a", b = folder.path / "b";
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::f16_flat}) {
    Trainee saved(precision);
    saved.run();
    saved.learn.save(a);
    Trainee loaded(precision, optim::adamw(), 77);
    loaded.learn.resume(a);
    loaded.run();  // it is over: nothing is left to do
    loaded.learn.save(b);
    CHECK(contents(a) == contents(b));
  }
}

TEST_CASE("weights that were changed by hand are what is saved") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  Trainee trainee(Precision::f16), loaded(Precision::f16, optim::adamw(), 77);
  trainee.run();
  trainee.model.load_state_dict(Trainee(Precision::f16, optim::adamw(), 5).model.state_dict());
  const std::vector<double> by_hand = weights(trainee.model);
  trainee.learn.save(path);
  CHECK(weights(trainee.model) == by_hand);
  loaded.learn.load(path);
  CHECK(weights(loaded.model) == by_hand);
}

TEST_CASE("a file of weights alone loads, with their full precision in the masters") {
  const Folder folder;
  const std::string path = folder.path / "weights.safetensors";
  Trainee other(Precision::f32);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : other.model.state_dict()) tensors[name] = tensor;
  save_safetensors(path, tensors);
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::f16_flat}) {
    Trainee trainee(precision, optim::adamw(), 77);
    trainee.learn.fit(1);
    const SavedState before = trainee.learn.optimizer().state_dict();
    trainee.learn.load(path);
    CHECK(masters(trainee.learn) == masters(other.learn));
    CHECK(trainee.learn.optimizer().state_dict().numbers == before.numbers);
    CHECK(contains(message_of([&] { trainee.learn.resume(path); }), "nothing to go on with"));
  }
  // And so do those of a checkpoint.
  Trainee saved(Precision::f16), loaded(Precision::f16, optim::sgd(), 77);
  saved.run();
  saved.learn.save(path);
  loaded.learn.load(path, {.with_opt = false});
  CHECK(masters(loaded.learn) == masters(saved.learn));
}

TEST_CASE("a checkpoint that does not fit is an error that says why, and changes nothing") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    Trainee saved(precision), trainee(precision, optim::adamw(), 77);
    saved.run();
    saved.learn.save(path);
    const SafetensorsFile good = load_safetensors(path);
    trainee.learn.fit(1);
    const auto before = outcome(trainee.learn);
    const auto message = [&](const std::function<void(SafetensorsFile&)>& damage) {
      SafetensorsFile file = good;
      damage(file);
      save_safetensors(path, file.tensors, file.metadata);
      const std::string load = message_of([&] { trainee.learn.load(path); });
      const std::string resume = message_of([&] { trainee.learn.resume(path); });
      CHECK(load == resume);
      check_same(before, outcome(trainee.learn));
      return load;
    };
    CHECK(contains(message([](auto& f) { f.tensors.erase("0.weight"); }), "missing: 0.weight"));
    CHECK(contains(message([](auto& f) { f.tensors["9.weight"] = zeros({1}); }), "unexpected: 9.weight"));
    CHECK(contains(message([](auto& f) {
                     f.tensors["0.weight"] = zeros({16, 9});
                   }),
                   "0.weight is [16, 9], the model's is [16, 8]"));
    CHECK(contains(message([](auto& f) {
                     f.tensors["0.weight"] = zeros({16, 8}, i64);
                   }),
                   "0.weight is i64, the model's is"));
    CHECK(contains(message([](auto& f) { f.tensors["optimizer/0.weight/exp_avg"] = zeros({2}); }), "shape [2]"));
    CHECK(contains(message([](auto& f) {
                     f.tensors["optimizer/0.weight/exp_avg"] = zeros({16, 8}, i64);
                   }),
                   "float dtype"));
    CHECK(contains(message([](auto& f) { f.metadata.erase("optimizer/0.weight/steps"); }), "steps"));
    CHECK(
        contains(message([](auto& f) { f.metadata["optimizer.0.group.0.lr"] = "fast"; }), "'fast', expected a number"));
    CHECK(contains(message([](auto& f) { f.metadata["optimizer.0"] = "SGD"; }),
                   "saved with the optimizer SGD, this Learner has AdamW"));
    CHECK(contains(message([](auto& f) { f.metadata["optimizer.1"] = "SGD"; }), "more than the 1 optimizers"));
    CHECK(contains(message([](auto& f) { f.metadata["halfgrad.version"] = "2"; }), "its version is 2"));
    CHECK(contains(message([](auto& f) { f.metadata.erase("random.seed"); }), "random.seed"));
    CHECK(contains(message_of([&] { trainee.learn.load(path + ".missing"); }), "No such file"));
    Trainee other(precision, optim::adamw(), 77);
    other.learn.split({"4"});
    save_safetensors(path, good.tensors, good.metadata);
    CHECK(contains(message_of([&] { other.learn.load(path); }), "1 groups, this optimizer has 2"));
  }
}

TEST_CASE("resuming another run than the one that was saved is an error") {
  const Folder folder;
  const std::string path = folder.path / "run.safetensors";
  Trainee saved(Precision::f16);
  CHECK_THROWS_WITH_AS((saved.learn.save(path), saved.learn.resume(path)),
                       doctest::Contains("not saved in or after a run"), Error);
  saved.learn.add(std::make_shared<SaveAt>(path, "batch_end", 8));
  saved.run();
  {
    Trainee without_schedule(Precision::f16);
    without_schedule.learn.resume(path);
    CHECK(contains(message_of([&] { without_schedule.learn.fit(3); }), "OneCycle"));
  }
  {
    nn::Sequential model = Trainee(Precision::f16).model;
    Learner learn({data::DataLoader(classes_dataset(40), {.batch_size = 4}), {}}, model, nn::cross_entropy,
                  {.silent = true});
    learn.to_fp16();
    learn.resume(path);
    CHECK(contains(message_of([&] { learn.fit_one_cycle(3, 0.05); }), "6 batches per epoch, the data has 10"));
    learn.fit(1);  // the next run is a new one
    CHECK(learn.state.iteration == 10);
  }
}

TEST_CASE("a checkpoint cannot be made in the middle of a step, and the last one stays") {
  struct SaveInBackward : Callback {
    std::string path;
    void on_backward_end(Learner& learn) override { learn.save(path); }
  };
  const Folder folder;
  const auto saver = std::make_shared<SaveInBackward>();
  saver->path = folder.path / "run.safetensors";
  Trainee trainee(Precision::f16);
  trainee.run();
  trainee.learn.save(saver->path);
  const std::string before = contents(saver->path);
  trainee.learn.add(saver);
  CHECK(contains(message_of([&] { trainee.run(); }), "in the middle of a training batch"));
  CHECK(contents(saver->path) == before);
  trainee.learn.save(saver->path);  // after the run it can be saved, but there is no going on from half a step
  CHECK(contains(message_of([&] { trainee.learn.resume(saver->path); }), "not saved in or after a run"));
}
