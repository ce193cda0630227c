#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "engine/error.h"

namespace halfgrad::optim {

double grad_norm(const GradStats& stats, double grad_scale) { return std::sqrt(stats.sum_of_squares) * grad_scale; }

double clip_factor(double norm, double max_norm) {
  check(max_norm >= 0, "clip: max_norm is {}; expected 0 or more", max_norm);
  constexpr double eps = 1e-6;
  return std::min(max_norm / (norm + eps), 1.0);
}

double clip_grad_norm_(const Tensors& params, double max_norm) {
  const NoGrad guard;
  Tensors grads;
  for (const Tensor& param : params)
    if (param.grad().defined()) grads.push_back(param.grad());
  const double norm = grad_norm(stats_of(grads));
  const double factor = clip_factor(norm, max_norm);
  if (factor != 1)
    for (Tensor& grad : grads) grad.mul_(factor);
  return norm;
}

}  // namespace halfgrad::optim
