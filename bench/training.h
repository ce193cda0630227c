#pragma once
// The training steps that are timed, on a CPU and on a GPU: the example models on random images.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "examples/models.h"

namespace bench {

struct TrainingCase {
  std::string model;
  std::int64_t batch, size;  ///< images [batch, 1, size, size]
  std::int64_t batches;      ///< of an epoch
};

/// Random images and classes, each epoch the same ones.
inline halfgrad::data::DataLoader random_images(const TrainingCase& c) {
  const std::int64_t items = c.batch * c.batches;
  const halfgrad::data::TensorDataset dataset(halfgrad::randn({items, 1, c.size, c.size}),
                                              halfgrad::randint(0, 10, {items}));
  return halfgrad::data::DataLoader(dataset, {.batch_size = c.batch, .shuffle = true});
}

/// Multiply-adds, as two operations each, of one training step: the forward products, and for each of them two in
/// backward, but none for the gradient of the input.
inline double flop_of_step(halfgrad::nn::Module& model, const TrainingCase& c) {
  using namespace halfgrad;
  constexpr std::int64_t kImages = 2;  // which tell the number for all
  double total = 0, first = 0;
  std::vector<std::pair<nn::Module*, int>> hooks;
  for (const auto& named : model.named_modules()) {
    nn::Module* module = named.second;
    const auto count = [&](const Tensor& weight) {
      const double per_output = 2.0 * static_cast<double>(weight.numel() / weight.size(0));
      hooks.emplace_back(module,
                         module->register_forward_hook([&, per_output](nn::Module&, const Tensors&, const Tensor& y) {
                           const double flop = per_output * static_cast<double>(y.numel());
                           if (total == 0) first = flop;
                           total += 3 * flop;
                           return Tensor();
                         }));
    };
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module)) count(conv->weight);
    if (const auto* linear = dynamic_cast<nn::Linear*>(module)) count(linear->weight);
  }
  NoGrad guard;
  model(zeros({kImages, 1, c.size, c.size}));
  for (const auto& [module, id] : hooks) module->remove_hook(id);
  return (total - first) * static_cast<double>(c.batch) / kImages;
}

}  // namespace bench
