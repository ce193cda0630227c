#include "optim/clip.h"

#include <cmath>

#include "engine/error.h"

namespace halfgrad::optim {

double grad_norm(const GradStats& stats, double grad_scale) { return std::sqrt(stats.sum_of_squares) * grad_scale; }

double clip_factor(double norm, double max_norm) {
  check(max_norm >= 0, "clip: max_norm is {}; expected 0 or more", max_norm);
  return clip_multiplier(norm, max_norm);
}

GradStats total(const std::vector<GradStats>& by_group) {
  GradStats all;
  for (const GradStats& group : by_group) {
    all.sum_of_squares += group.sum_of_squares;
    all.non_finite += group.non_finite;
  }
  return all;
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
