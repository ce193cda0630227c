#pragma once

#include <map>
#include <string>

#include "engine/tensor.h"

namespace halfgrad {

/// What a part of a training run keeps in a checkpoint: named tensors, and named numbers, which come back bit for bit
/// (whole numbers up to 2^53).
struct SavedState {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> numbers;

  bool empty() const { return tensors.empty() && numbers.empty(); }
};

}  // namespace halfgrad
