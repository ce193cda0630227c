#pragma once
// Optimizer updates and gradient statistics, over a range of elements.

#include <cstdint>

namespace halfgrad::cpu {

enum class FloatType : int { f16, f32, f64 };

struct FloatArray {
  void* data;
  FloatType type;
};

/// What every optimizer needs; see OptimizerStep in engine/backend.h. Arithmetic and state are f64 when the
/// master is f64, else f32.
struct UpdateWork {
  FloatArray param, master, grad;
  double grad_scale;
  double lr;
  double weight_decay;
};

struct SgdConstants {
  double momentum;
  double dampening;
  bool nesterov;
  bool first;  ///< the momentum buffer holds nothing yet
};

struct AdamConstants {
  double beta1;
  double beta2;
  double eps;
  double bias_correction1;  ///< 1 - beta1^t
  double bias_correction2;  ///< 1 - beta2^t
  bool decoupled;           ///< AdamW
};

struct RmspropConstants {
  double alpha;
  double eps;
  double momentum;
};

struct OptimizerKernels {
  // Each updates the elements [begin, end). A momentum buffer is nullptr without momentum.
  void (*sgd)(const UpdateWork&, void* momentum_buffer, const SgdConstants&, std::int64_t begin, std::int64_t end);
  void (*adam)(const UpdateWork&, void* exp_avg, void* exp_avg_sq, const AdamConstants&, std::int64_t begin,
               std::int64_t end);
  void (*rmsprop)(const UpdateWork&, void* square_avg, void* momentum_buffer, const RmspropConstants&,
                  std::int64_t begin, std::int64_t end);
  /// The sum of squares, in f64, and the number of elements that are inf or NaN.
  void (*grad_stats)(const FloatArray& grad, std::int64_t begin, std::int64_t end, double* sum_of_squares,
                     std::int64_t* non_finite);
};

}  // namespace halfgrad::cpu
