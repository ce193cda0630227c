#pragma once
// Activations as layers, for Sequential. Each is the function of the same name in engine/ops/elementwise.h.

#include "engine/ops/elementwise.h"
#include "engine/ops/softmax.h"
#include "nn/module.h"

namespace halfgrad::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }

 protected:
  Activation activation() const override { return is_exactly<ReLU>(*this) ? Activation::relu : Activation::none; }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope); }
  std::string extra_repr() const override { return fmt::format("{}", negative_slope); }

  double negative_slope;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha); }
  std::string extra_repr() const override { return fmt::format("{}", alpha); }

  double alpha;
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1) : beta(beta) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta); }
  std::string extra_repr() const override { return fmt::format("{}", beta); }

  double beta;
};

class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

/// Not before cross_entropy, which takes the logits themselves.
class Softmax : public Module {
 public:
  explicit Softmax(std::int64_t dim = -1) : dim(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim); }
  std::string extra_repr() const override { return fmt::format("{}", dim); }

  std::int64_t dim;
};

}  // namespace halfgrad::nn
