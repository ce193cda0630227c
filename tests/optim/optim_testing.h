#pragma once
// What the tests of optimizers share.

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optim/adam.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"

namespace halfgrad::testing {

/// Numbers in [-scale, scale) that are exact in every float type.
inline Tensor random_tensor(const Shape& shape, DType dtype, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = static_cast<float>(half(uniform(generator))) * scale;
  return from_vector(values, shape).to(dtype);
}

inline Tensor parameter(const Shape& shape, DType dtype, unsigned seed) {
  return random_tensor(shape, dtype, seed).requires_grad_();
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return std::memcmp(x.raw_data(), y.raw_data(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

struct NamedFactory {
  std::string name;
  optim::OptimizerFactory make;
};

/// Every optimizer, in the variants that differ in their state.
inline std::vector<NamedFactory> all_optimizers() {
  return {{"sgd", optim::sgd({.lr = 0.1})},
          {"sgd momentum", optim::sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01})},
          {"adam", optim::adam({.lr = 0.01, .weight_decay = 0.01})},
          {"adamw", optim::adamw({.lr = 0.01})},
          {"rmsprop", optim::rmsprop({.lr = 0.01})},
          {"rmsprop momentum", optim::rmsprop({.lr = 0.01, .momentum = 0.9})}};
}

inline std::unique_ptr<optim::Optimizer> make_optimizer(const optim::OptimizerFactory& factory, const Tensors& params) {
  return factory({optim::GroupSpec{.params = params}});
}

}  // namespace halfgrad::testing
