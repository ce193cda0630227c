// BnFreeze and StopAfterNBatches.

#include "callbacks/bn_freeze.h"
#include "callbacks/stop_after.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

std::vector<float> statistics(nn::Module& model, const std::string& layer) {
  std::vector<float> all;
  for (const auto& [name, buffer] : model.named_buffers())
    if (name.starts_with(layer + "."))
      for (const float value : buffer.to_vector<float>()) all.push_back(value);
  REQUIRE_FALSE(all.empty());
  return all;
}

/// Batchnorm as layers 1 and 4.
nn::Sequential two_norms() {
  manual_seed(3);
  return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 8), nn::BatchNorm1d(8),
                        nn::Linear(8, 3));
}

}  // namespace

TEST_CASE("BnFreeze keeps the running statistics of frozen batchnorm layers, and only of those") {
  for (const bool fp16 : {false, true})
    for (const bool freeze : {false, true}) {
      nn::Sequential model = two_norms();
      model[1].requires_grad_(false);
      Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
      if (freeze) learn.add(std::make_shared<BnFreeze>());
      if (fp16) learn.to_fp16();
      const std::vector<float> first = statistics(model, "1"), second = statistics(model, "4");
      learn.fit(2);
      CHECK((statistics(model, "1") == first) == freeze);
      CHECK(statistics(model, "4") != second);
      CHECK(model[4].is_training());
    }
}

TEST_CASE("BnFreeze holds after a validation inside an epoch, and lets go of what is unfrozen") {
  struct InBetween : Callback {
    nn::Module* thaw = nullptr;
    void on_batch_end(Learner& learn) override {
      if (!learn.state.train) return;
      if (learn.state.iteration == 0) learn.validate();
      if (thaw && learn.state.iteration == 1) thaw->requires_grad_();
    }
  };
  for (const bool thaw : {false, true}) {
    nn::Sequential model = two_norms();
    model[1].requires_grad_(false);
    const auto between = std::make_shared<InBetween>();
    if (thaw) between->thaw = &model[1];
    Learner learn(small_data(), model, nn::cross_entropy,
                  {.callbacks = {std::make_shared<BnFreeze>(), between}, .silent = true});
    const std::vector<float> before = statistics(model, "1");
    learn.fit(1);
    CHECK((statistics(model, "1") == before) != thaw);
  }
}

TEST_CASE("StopAfterNBatches ends the run after n training batches, without validation") {
  for (const bool fp16 : {false, true})
    for (const int n : {1, 3, 4, 100}) {
      nn::Sequential model = small_mlp();
      const auto trace = std::make_shared<Trace>();
      Learner learn(small_data(), model, nn::cross_entropy,
                    {.callbacks = {std::make_shared<StopAfterNBatches>(n), trace}, .silent = true});
      if (fp16) learn.to_fp16();
      learn.fit(2);
      const int batches = std::min(n, 6);
      CHECK(learn.state.iteration == batches);
      CHECK(learn.recorder().losses.size() == static_cast<std::size_t>(batches));
      const auto validations = std::count(trace->events.begin(), trace->events.end(), "valid batch_end") / 2;
      CHECK(validations == (n == 100 ? 2 : (n - 1) / 3));
      CHECK(trace->events.back() == "train_end");
    }
  CHECK_THROWS_WITH_AS(StopAfterNBatches(0), doctest::Contains("n is 0"), Error);
}
