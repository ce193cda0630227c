#pragma once
// What the tests of this folder share: small data, a small network, and callbacks that watch or disturb a
// run.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "callbacks/learner.h"
#include "engine/random.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace halfgrad::test {

inline constexpr float inf = std::numeric_limits<float>::infinity();

/// x [n, features] and classes i64 [n] that a linear model can tell apart; the same for the same seed.
inline data::TensorDataset classes_dataset(std::int64_t n, std::int64_t features = 8, std::int64_t classes = 3,
                                           std::uint64_t seed = 1) {
  Generator generator(seed);
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < n; ++i) {
    y.push_back(i % classes);
    for (std::int64_t j = 0; j < features; ++j)
      x.push_back(static_cast<float>(generator.next_uniform() - 0.5 + (j % classes == y.back() ? 1.0 : 0.0)));
  }
  return data::TensorDataset(from_vector(x, {n, features}), from_vector(y));
}

/// Three training batches and two of validation (the last a short one), in a fixed order.
inline data::Data small_data(std::int64_t batch_size = 16) {
  const data::LoaderOptions options{.batch_size = batch_size, .prefetch = 0};
  return {data::DataLoader(classes_dataset(48), options), data::DataLoader(classes_dataset(24, 8, 3, 2), options)};
}

inline nn::Sequential small_mlp(std::uint64_t seed = 3) {
  manual_seed(seed);
  return nn::Sequential(nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 3));
}

/// Calls on() at every event, by its name; those of validation and prediction begin with "valid ".
struct EveryEvent : Callback {
  virtual void on(Learner& learn, const std::string& event) = 0;
  void of_batch(Learner& learn, const char* event) {
    on(learn, (learn.state.train ? "" : "valid ") + std::string(event));
  }

  void on_train_begin(Learner& learn) override { on(learn, "train_begin"); }
  void on_epoch_begin(Learner& learn) override { on(learn, "epoch_begin"); }
  void on_batch_begin(Learner& learn) override { of_batch(learn, "batch_begin"); }
  void on_loss_begin(Learner& learn) override { of_batch(learn, "loss_begin"); }
  void on_backward_begin(Learner& learn) override { of_batch(learn, "backward_begin"); }
  void on_backward_end(Learner& learn) override { of_batch(learn, "backward_end"); }
  void on_step_end(Learner& learn) override { of_batch(learn, "step_end"); }
  void on_batch_end(Learner& learn) override { of_batch(learn, "batch_end"); }
  void on_epoch_end(Learner& learn) override { on(learn, "epoch_end"); }
  void on_train_end(Learner& learn, std::exception_ptr) override { on(learn, "train_end"); }
};

/// Writes down every event.
struct Trace : EveryEvent {
  std::vector<std::string> events;
  std::exception_ptr error;
  void on(Learner&, const std::string& event) override { events.push_back(event); }
  void on_train_end(Learner& learn, std::exception_ptr e) override {
    error = e;
    EveryEvent::on_train_end(learn, e);
  }
};

/// Puts an inf into one gradient in the given iterations, as an overflow would.
struct Overflow : Callback {
  explicit Overflow(std::set<std::int64_t> iterations) : iterations(std::move(iterations)) {}
  void on_backward_end(Learner& learn) override {
    if (!iterations.contains(learn.state.iteration)) return;
    Tensor grad = learn.optimizer().groups().front().entries.back().param.grad();
    grad.fill_(inf);
  }
  std::set<std::int64_t> iterations;
};

/// All parameters and buffers, one value after the other.
inline std::vector<double> weights(const nn::Module& model) {
  std::vector<double> all;
  for (const auto& [name, tensor] : model.state_dict())
    for (const double value : tensor.to(f64).to_vector<double>()) all.push_back(value);
  return all;
}

/// All masters, one value after the other; a parameter without one is its own.
inline std::vector<double> masters(Learner& learn) {
  std::vector<double> all;
  for (const optim::ParamGroup& group : learn.optimizer().groups())
    for (const optim::Entry& entry : group.entries)
      for (const double value : entry.master.to(f64).to_vector<double>()) all.push_back(value);
  return all;
}

inline optim::OptimizerFactory momentum_sgd() {
  return optim::sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
}

/// All tensors and numbers of the optimizer, one value after the other.
inline std::vector<double> state_values(Learner& learn) {
  std::vector<double> all;
  const SavedState state = learn.optimizer().state_dict();
  for (const auto& [name, tensor] : state.tensors)
    for (const double v : tensor.to(f64).to_vector<double>()) all.push_back(v);
  for (const auto& [name, number] : state.numbers) all.push_back(number);
  return all;
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace halfgrad::test
