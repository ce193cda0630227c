#include "optim/anneal.h"

#include <cmath>
#include <numbers>

#include "engine/error.h"

namespace halfgrad::optim {

double anneal_no(double start, double, double) { return start; }

double anneal_linear(double start, double end, double fraction) { return start + fraction * (end - start); }

double anneal_cos(double start, double end, double fraction) {
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * fraction) + 1);
}

double anneal_exp(double start, double end, double fraction) {
  check(start * end > 0,
        "anneal_exp: from {} to {} there is no curve of equal ratios; both must be positive or both negative", start,
        end);
  return start * std::pow(end / start, fraction);
}

Anneal anneal_poly(double degree) {
  return [degree](double start, double end, double fraction) {
    return end + (start - end) * std::pow(1 - fraction, degree);
  };
}

}  // namespace halfgrad::optim
