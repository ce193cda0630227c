#pragma once
// Gradient clipping by the global L2 norm, as torch.nn.utils.clip_grad_norm_ (Pascanu, Mikolov and Bengio,
// "On the difficulty of training recurrent neural networks", 2013).

#include "optim/optimizer.h"

namespace halfgrad::optim {

/// The L2 norm of all gradients together, accumulated in f64; gradients times `grad_scale` if that is given.
double grad_norm(const GradStats& stats, double grad_scale = 1);

GradStats total(const std::vector<GradStats>& by_group);

/// min(1, max_norm / (norm + 1e-6)): what to multiply gradients of this norm with. A norm that is not finite
/// gives NaN or 0; whoever calls has looked at GradStats::non_finite before. Throws Error for a negative
/// max_norm.
double clip_factor(double norm, double max_norm);

/// Multiplies the gradients in place so that their norm is at most max_norm, and returns the norm before.
/// Parameters without gradient are passed over. These are the gradients as they are: under mixed precision
/// those of the scaled loss, rounded to half once more; there, give Optimizer::step() a clip instead.
double clip_grad_norm_(const Tensors& params, double max_norm);

}  // namespace halfgrad::optim
