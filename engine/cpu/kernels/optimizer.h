#pragma once
// Optimizer updates and gradient statistics, over a range of elements.

#include <cstdint>

#include "engine/optimizer_rules.h"

namespace halfgrad::cpu {

enum class FloatType : int { f16, f32, f64 };

struct FloatArray {
  void* data;
  FloatType type;
};

/// See OptimizerStep in engine/backend.h. Arithmetic and state are f64 when the master is f64, else f32.
struct UpdateWork {
  FloatArray param, master, grad;
  void* state[2];  ///< nullptr: there is none
  GroupControl control;
  rules::Progress progress;
};

struct OptimizerKernels {
  // Each updates the elements [begin, end) by the rule of its name, engine/optimizer_rules.h.
  void (*sgd)(const UpdateWork&, const rules::SgdConstants&, std::int64_t begin, std::int64_t end);
  void (*adam)(const UpdateWork&, const rules::AdamConstants&, std::int64_t begin, std::int64_t end);
  void (*rmsprop)(const UpdateWork&, const rules::RmspropConstants&, std::int64_t begin, std::int64_t end);
  /// The sum of squares, in f64, and the number of elements that are inf or NaN.
  void (*grad_stats)(const FloatArray& grad, std::int64_t begin, std::int64_t end, double* sum_of_squares,
                     std::int64_t* non_finite);
};

}  // namespace halfgrad::cpu
