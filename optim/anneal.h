#pragma once
// Curves from one value of a hyperparameter to another; fraction 0 is the start, 1 the end. As fastai's
// annealing_*.

#include <functional>

namespace halfgrad::optim {

using Anneal = std::function<double(double start, double end, double fraction)>;

/// Stays at start.
double anneal_no(double start, double end, double fraction);
double anneal_linear(double start, double end, double fraction);
/// Half a period of the cosine: slow, fast, slow.
double anneal_cos(double start, double end, double fraction);
/// By equal ratios. Throws Error unless start and end are both positive or both negative.
double anneal_exp(double start, double end, double fraction);
/// end + (start - end) * (1 - fraction)^degree
Anneal anneal_poly(double degree);

}  // namespace halfgrad::optim
