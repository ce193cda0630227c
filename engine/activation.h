#pragma once

#include <limits>

namespace halfgrad {

/// What an op that ends with an activation does to its result while that is still in registers. In f16 too the result is,
/// bit for bit, that of the activation as an op of its own, because rounding changes no sign. Other activations would have to
/// keep their input for backward, which saves no memory; and the GELU of NVIDIA's libraries is the approximation with tanh,
/// ours is exact.
enum class Activation : int {
  none,
  relu,  ///< 0 for x < 0, else x; NaN stays NaN
};

/// The least number that an activation lets through; what is less becomes that.
constexpr float lowest_of(Activation activation) {
  return activation == Activation::relu ? 0.0F : -std::numeric_limits<float>::infinity();
}

}  // namespace halfgrad
