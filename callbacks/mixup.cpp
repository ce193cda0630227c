#include "callbacks/mixup.h"

#include <algorithm>
#include <cmath>

#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/philox.h"

namespace halfgrad {

namespace {

double standard_normal(Generator& generator) {
  const std::uint32_t a = generator.next_uint32(), b = generator.next_uint32();
  return normal_pair(a, b).first;
}

// The logarithm of a number from Gamma(shape, 1), whose own value may be too small for a double.
double log_random_gamma(double shape, Generator& generator) {
  // Theirs is for shapes from 1 on: draw for shape + 1, and multiply by u^(1/shape).
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  double log_gamma = 0;
  for (bool accepted = false; !accepted;) {
    const double x = standard_normal(generator), u = 1 - generator.next_uniform();  // u > 0
    const double v = std::pow(1 + c * x, 3);
    accepted = v > 0 && std::log(u) < x * x / 2 + d - d * v + d * std::log(v);
    if (accepted) log_gamma = std::log(d * v);
  }
  return log_gamma + std::log(1 - generator.next_uniform()) / shape;
}

// [N] -> [N, 1, 1, ...], to stand beside x [N, *].
Tensor beside(const Tensor& per_sample, const Tensor& x) {
  Shape shape(static_cast<std::size_t>(x.rank()), 1);
  shape[0] = per_sample.size(0);
  return per_sample.view(shape);
}

// i64 [N, *] -> f32 [N, C, *]: 1 at the class, else 0.
Tensor probabilities(const Tensor& classes, const Tensor& output) {
  check(classes.dtype() == i64 && output.rank() == classes.rank() + 1,
        "MixUp: the target is {} {} and the output {}; expected class indices i64 [N, *] for scores [N, C, *], or a "
        "floating target",
        name_of(classes.dtype()), classes.shape(), output.shape());
  Shape dims = {0, classes.rank()};  // one_hot has the classes in the last dimension
  for (std::int64_t dim = 1; dim < classes.rank(); ++dim) dims.push_back(dim);
  return cast(one_hot(classes, output.size(1)).permute(dims), f32);
}

}  // namespace

double random_beta(double a, double b, Generator& generator) {
  check(a > 0 && b > 0 && std::isfinite(a) && std::isfinite(b),
        "random_beta: a is {} and b {}; expected positive numbers", a, b);
  const double log_x = log_random_gamma(a, generator), log_y = log_random_gamma(b, generator);
  return 1 / (1 + std::exp(log_y - log_x));
}

MixUp::MixUp(const MixUpOptions& options) : options_(options) {
  check(options_.alpha > 0 && std::isfinite(options_.alpha), "MixUp: alpha {} must be a positive number",
        options_.alpha);
}

Tensor MixUp::mixed(const Tensor& x) const {
  check(x.rank() > 0 && x.size(0) == lambda_.size(0),
        "MixUp: a tensor of the batch is {}, but the batch has {} samples", x.shape(), lambda_.size(0));
  const Tensor lambda = beside(lambda_, x);
  return cast(lambda * x + (1 - lambda) * index_select(x, 0, others_), x.dtype());
}

void MixUp::on_batch_begin(Learner& learn) {
  if (!learn.state.train) return;
  NoGrad guard;
  Tensors& inputs = learn.state.last_input;
  check(!inputs.empty() && inputs.front().rank() > 0, "MixUp: the batch has no input with samples to mix");
  std::vector<float> lambdas;
  for (std::int64_t i = 0; i < inputs.front().size(0); ++i) {
    const double lambda = random_beta(options_.alpha, options_.alpha);
    lambdas.push_back(static_cast<float>(std::max(lambda, 1 - lambda)));
  }
  lambda_ = from_vector(lambdas).to(inputs.front().device());
  others_ = from_vector(random_permutation(inputs.front().size(0))).to(inputs.front().device());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(is_floating(inputs[i].dtype()), "MixUp: input {} is {}; only floating inputs can be mixed", i,
          name_of(inputs[i].dtype()));
    inputs[i] = mixed(inputs[i]);
  }
}

void MixUp::on_loss_begin(Learner& learn) {
  if (!learn.state.train) return;
  NoGrad guard;
  for (Tensor& target : learn.state.last_target)
    target = mixed(is_floating(target.dtype()) ? target : probabilities(target, learn.state.last_output));
}

}  // namespace halfgrad
