#pragma once

#include "engine/ops/dropout.h"
#include "nn/module.h"

namespace halfgrad::nn {

/// While training, zeroes elements with probability p and divides the others by 1 - p, see dropout().
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p(p) {
    check(p >= 0 && p <= 1, "Dropout: p is {}, expected a probability in [0, 1]", p);
  }
  Tensor forward(const Tensor& x) override { return dropout(x, p, is_training()); }
  std::string extra_repr() const override { return fmt::format("{}", p); }

  double p;
};

}  // namespace halfgrad::nn
