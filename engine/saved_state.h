#pragma once

#include <map>
#include <string>

#include "engine/tensor.h"

namespace halfgrad {

/// What a part of a training run keeps in a checkpoint: named tensors, and named numbers, which come back bit for bit
/// (whole numbers up to 2^53).
struct SavedState {
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, double> numbers = {};

  bool empty() const { return tensors.empty() && numbers.empty(); }
  /// What was saved under this name; an Error when there is nothing.
  const Tensor& tensor(const std::string& name) const { return find(tensors, "tensor", name); }
  double number(const std::string& name) const { return find(numbers, "number", name); }

 private:
  template <class T>
  static const T& find(const std::map<std::string, T>& all, const char* kind, const std::string& name) {
    const auto found = all.find(name);
    check(found != all.end(), "saved state: it has no {} '{}'; was it written by another class or version?", kind,
          name);
    return found->second;
  }
};

}  // namespace halfgrad
