#pragma once
// What tests of checkpoints share: a callback that saves one, and all that a run leaves.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "training.h"

namespace halfgrad::test {

enum class Precision { f32, f16, f16_flat };

/// Saves once, at an event of an epoch; `iteration` counts training batches.
struct SaveAt : Callback {
  SaveAt(std::string path, std::string event, std::int64_t iteration)
      : path(std::move(path)), event(std::move(event)), iteration(iteration) {}
  std::string path, event;
  std::int64_t iteration;
  int order() const override { return 1000; }
  void at(Learner& learn, const char* here) {
    if (event == here && learn.state.iteration == iteration) learn.save(path);
  }
  void on_train_begin(Learner& learn) override { at(learn, "train_begin"); }
  void on_epoch_begin(Learner& learn) override { at(learn, "epoch_begin"); }
  void on_batch_end(Learner& learn) override { at(learn, learn.state.train ? "batch_end" : "valid batch_end"); }
  void on_epoch_end(Learner& learn) override { at(learn, "epoch_end"); }
};

using Outcome = std::map<std::string, std::vector<double>>;

/// Everything that a run leaves, as named values.
inline Outcome outcome(Learner& learn) {
  Outcome all;
  for (const auto& [name, tensor] : learn.model().state_dict()) all[name] = tensor.to(f64).to_vector<double>();
  for (std::size_t i = 0; i < learn.optimizers().size(); ++i) {
    const std::string prefix = "optimizer " + std::to_string(i) + " ";
    const SavedState optimizer = learn.optimizers()[i]->state_dict();
    for (const auto& [name, tensor] : optimizer.tensors) all[prefix + name] = tensor.to(f64).to_vector<double>();
    for (const auto& [name, number] : optimizer.numbers) all[prefix + name] = {number};
    if (const MixedPrecision* precision = learn.mixed_precision()) {
      const LossScaler scaler = precision->scaler(i);
      all[prefix + "scaler"] = {scaler.scale, static_cast<double>(scaler.noskip), static_cast<double>(scaler.skipped)};
    }
  }
  all["random"] = {static_cast<double>(default_generator().state().seed),
                   static_cast<double>(default_generator().state().offset)};
  all["state"] = {static_cast<double>(learn.state.epoch), static_cast<double>(learn.state.iteration),
                  learn.state.smooth_loss};
  all["metrics"] = learn.state.last_metrics;
  return all;
}

inline void check_same(const Outcome& a, const Outcome& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& entry : a) {
    CAPTURE(entry.first);
    CHECK(b.at(entry.first) == entry.second);
  }
}

}  // namespace halfgrad::test
