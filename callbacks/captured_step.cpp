#include "callbacks/captured_step.h"

#include <algorithm>

#include "engine/random.h"

namespace halfgrad {

Tensors CapturedStep::copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& x : tensors) copies.push_back(x.detach().clone());
  return copies;
}

void CapturedStep::record(Device device, const std::function<void()>& work) {
  Generator& generator = default_generator();
  const GeneratorState before = generator.state();
  try {
    graph_ = backend_for(device).capture(work, before.offset);
  } catch (...) {
    generator.set_state(before);
    throw;
  }
  random_counters_ = generator.state().offset - before.offset;
  generator.set_state(before);  // nothing has been drawn yet
}

bool CapturedStep::takes(const data::Batch& batch) const {
  const auto same = [](const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && a.dtype() == b.dtype(); };
  return std::equal(inputs.begin(), inputs.end(), batch.inputs.begin(), batch.inputs.end(), same) &&
         std::equal(targets.begin(), targets.end(), batch.targets.begin(), batch.targets.end(), same);
}

void CapturedStep::replay(const data::Batch& batch) {
  const NoGrad guard;
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(batch.inputs[i]);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i].copy_(batch.targets[i]);
  Generator& generator = default_generator();
  const std::uint64_t seed = generator.seed();
  graph_->replay(seed, generator.reserve(random_counters_));
}

}  // namespace halfgrad
