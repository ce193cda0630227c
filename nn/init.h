#pragma once
// Initialisers: fill a tensor in place, from the default generator, outside of the graph. The names and
// formulas are PyTorch's. A weight is [out, in, kernel...]; fan_in is the number of inputs that one output
// sums over.

#include "engine/tensor.h"

namespace halfgrad::nn::init {

Tensor& zeros_(Tensor& x);
Tensor& ones_(Tensor& x);
Tensor& constant_(Tensor& x, double value);
Tensor& uniform_(Tensor& x, double low = 0, double high = 1);
Tensor& normal_(Tensor& x, double mean = 0, double std = 1);
/// Normal, but drawn again while outside of [low, high].
Tensor& trunc_normal_(Tensor& x, double mean = 0, double std = 1, double low = -2, double high = 2);
/// A matrix with ones on the diagonal.
Tensor& eye_(Tensor& x);
/// Orthonormal rows (or columns, when there are fewer), seen as a matrix [out, the rest] (Saxe et al., 2013).
Tensor& orthogonal_(Tensor& x, double gain = 1);

struct Fans {
  std::int64_t in, out;
};
Fans fans(const Tensor& weight);

/// After which function the weights' outputs go.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// The factor that keeps the variance across the function; `slope` is leaky_relu's.
double gain(Nonlinearity nonlinearity, double slope = 0.01);

/// Variance gain^2 * 2 / (fan_in + fan_out) (Glorot and Bengio, 2010).
Tensor& xavier_uniform_(Tensor& weight, double gain = 1);
Tensor& xavier_normal_(Tensor& weight, double gain = 1);

enum class Fan { in, out };
struct KaimingOptions {
  double a = 0;  ///< leaky_relu's slope; 0 is a ReLU
  Fan fan = Fan::in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
/// Variance gain^2 / fan (He et al., 2015).
Tensor& kaiming_uniform_(Tensor& weight, const KaimingOptions& options = {});
Tensor& kaiming_normal_(Tensor& weight, const KaimingOptions& options = {});

/// What Linear and convolutions start with: both uniform in +-1/sqrt(fan_in). Makes them require gradients;
/// bias may be undefined.
void default_(Tensor& weight, Tensor& bias);

}  // namespace halfgrad::nn::init
