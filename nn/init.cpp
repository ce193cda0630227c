#include "nn/init.h"

#include <Eigen/Dense>
#include <cmath>

#include "engine/ops/elementwise.h"

namespace halfgrad::nn::init {

namespace {

void set_values(Tensor& x, const std::vector<double>& values) {
  const NoGrad guard;
  x.copy_(from_vector(values, x.shape()));
}

double chosen_fan(const Tensor& weight, Fan fan) {
  const Fans both = fans(weight);
  return static_cast<double>(fan == Fan::in ? both.in : both.out);
}

}  // namespace

Tensor& zeros_(Tensor& x) { return constant_(x, 0); }
Tensor& ones_(Tensor& x) { return constant_(x, 1); }

Tensor& constant_(Tensor& x, double value) {
  const NoGrad guard;
  return x.fill_(value);
}

Tensor& uniform_(Tensor& x, double low, double high) {
  const NoGrad guard;
  return x.uniform_(low, high);
}

Tensor& normal_(Tensor& x, double mean, double std) {
  const NoGrad guard;
  return x.normal_(mean, std);
}

Tensor& trunc_normal_(Tensor& x, double mean, double std, double low, double high) {
  check(low < high && mean + 3 * std > low && mean - 3 * std < high,
        "trunc_normal_: [{}, {}] lies beyond three deviations of N({}, {}); nearly nothing would be accepted", low,
        high, mean, std);
  std::vector<double> values;
  const auto wanted = static_cast<std::size_t>(x.numel());
  while (values.size() < wanted)
    for (const double value : (mean + std * randn({x.numel()}, f64)).to_vector<double>())
      if (value >= low && value <= high && values.size() < wanted) values.push_back(value);
  set_values(x, values);
  return x;
}

Tensor& eye_(Tensor& x) {
  check(x.rank() == 2, "eye_: found shape {}, expected a matrix", x.shape());
  const NoGrad guard;
  return x.copy_(eye(x.size(0), x.size(1)));
}

Tensor& orthogonal_(Tensor& x, double gain) {
  check(x.rank() >= 2 && x.numel() > 0, "orthogonal_: found shape {}, expected at least a matrix", x.shape());
  const std::int64_t rows = x.size(0), columns = x.numel() / rows;
  const std::int64_t tall = std::max(rows, columns), narrow = std::min(rows, columns);
  const std::vector<double> normal = randn({tall * narrow}, f64).to_vector<double>();
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(Eigen::Map<const Eigen::MatrixXd>(normal.data(), tall, narrow));
  Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(tall, narrow);
  // The factorisation fixes signs by convention; those of R's diagonal make all orthogonal matrices equally
  // likely.
  for (std::int64_t i = 0; i < narrow; ++i)
    if (qr.matrixQR()(i, i) < 0) q.col(i) *= -1;
  if (rows < columns) q.transposeInPlace();
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) values.push_back(gain * q(i, j));
  set_values(x, values);
  return x;
}

Fans fans(const Tensor& weight) {
  check(weight.rank() >= 2 && weight.numel() > 0,
        "init: the fans of a weight {} are not defined, expected [out, in, kernel...]", weight.shape());
  const std::int64_t kernel = weight.numel() / (weight.size(0) * weight.size(1));
  return {weight.size(1) * kernel, weight.size(0) * kernel};
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      return 1;
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu:
      return 0.75;
  }
  fail("init: nonlinearity {} is not known", static_cast<int>(nonlinearity));
}

Tensor& xavier_normal_(Tensor& weight, double gain) {
  const Fans both = fans(weight);
  return normal_(weight, 0, gain * std::sqrt(2.0 / static_cast<double>(both.in + both.out)));
}

Tensor& xavier_uniform_(Tensor& weight, double gain) {
  const Fans both = fans(weight);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(both.in + both.out));
  return uniform_(weight, -bound, bound);
}

Tensor& kaiming_normal_(Tensor& weight, const KaimingOptions& options) {
  return normal_(weight, 0, gain(options.nonlinearity, options.a) / std::sqrt(chosen_fan(weight, options.fan)));
}

Tensor& kaiming_uniform_(Tensor& weight, const KaimingOptions& options) {
  const double bound = gain(options.nonlinearity, options.a) * std::sqrt(3 / chosen_fan(weight, options.fan));
  return uniform_(weight, -bound, bound);
}

void default_(Tensor& weight, Tensor& bias) {
  kaiming_uniform_(weight, {.a = std::sqrt(5.0)}).requires_grad_();
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(fans(weight).in));
  uniform_(bias, -bound, bound).requires_grad_();
}

}  // namespace halfgrad::nn::init
