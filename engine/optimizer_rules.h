#pragma once
// The formulas of the optimizers, each in one place for all devices: a rule gets the weights, the scaled gradient and the
// state, and gives the new weights. V is a number (on a GPU, and for f64), or a vector of floats (on a CPU). Sources are in
// optim/*.h. Every operation is rounded by itself (no fused multiply-add), so that all processors give the same bits.
//
// A rule is made from the hyperparameters once per pass; C is the type of master and state, float or double. `root` is the
// square root for V.

#include <cmath>
#include <cstdint>

#include "engine/step_control.h"

// The kernels are compiled once per instruction set; the inline namespace keeps the copies apart at link time.
#ifndef HALFGRAD_ISA
#define HALFGRAD_ISA portable
#endif

namespace halfgrad::rules {

// What does not change from step to step.
struct SgdConstants {
  double dampening = 0;
  bool nesterov = false;
};
struct AdamConstants {
  double eps = 0;
  bool decoupled = false;  ///< AdamW
};
struct RmspropConstants {
  double eps = 0;
};

/// base^n for n >= 0, by squaring: the same bits everywhere, which the power functions of processors do not give. Its
/// relative error is at most 2 n 2^-53, as of n products.
constexpr double power(double base, std::int64_t n) {
  double result = 1;
  for (; n > 0; n /= 2) {
    if (n % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

/// What a rule must know of one parameter.
struct Progress {
  std::int64_t step = 1;  ///< this one's number, from 1
  bool first = false;     ///< the state holds nothing yet
};

inline namespace HALFGRAD_ISA {

/// s[0]: the momentum buffer.
template <class C>
struct SgdRule {
  C lr, weight_decay, momentum, fresh;
  bool nesterov, first;

  constexpr SgdRule(const GroupControl& g, const SgdConstants& c, const Progress& p)
      : lr(static_cast<C>(g.lr)),
        weight_decay(static_cast<C>(g.weight_decay)),
        momentum(static_cast<C>(g.momentum)),
        fresh(static_cast<C>(1 - c.dampening)),
        nesterov(c.nesterov),
        first(p.first) {}

  template <class V, class Root>
  [[gnu::always_inline]] constexpr V operator()(V w, V g, V* s, Root) const {
    if (weight_decay != 0) g = g + weight_decay * w;
    if (momentum != 0) {
      s[0] = first ? g : V(momentum * s[0] + fresh * g);
      g = nesterov ? V(g + momentum * s[0]) : s[0];
    }
    return w - lr * g;
  }
};

/// s[0]: exp_avg, s[1]: exp_avg_sq.
template <class C>
struct AdamRule {
  C weight_decay, keep, fresh1, beta2, fresh2, eps, step_size, root_correction2;
  bool decoupled;

  constexpr AdamRule(const GroupControl& g, const AdamConstants& c, const Progress& p)
      : weight_decay(static_cast<C>(g.weight_decay)),
        keep(static_cast<C>(1 - g.lr * g.weight_decay)),
        fresh1(static_cast<C>(1 - g.momentum)),
        beta2(static_cast<C>(g.beta2)),
        fresh2(static_cast<C>(1 - g.beta2)),
        eps(static_cast<C>(c.eps)),
        step_size(static_cast<C>(g.lr / (1 - power(g.momentum, p.step)))),
        root_correction2(static_cast<C>(std::sqrt(1 - power(g.beta2, p.step)))),
        decoupled(c.decoupled) {}

  template <class V, class Root>
  [[gnu::always_inline]] constexpr V operator()(V w, V g, V* s, Root root) const {
    if (weight_decay != 0) {
      if (decoupled) {
        w = w * keep;
      } else {
        g = g + weight_decay * w;
      }
    }
    s[0] = s[0] + (g - s[0]) * fresh1;  // beta1 * s[0] + (1 - beta1) * g, written as PyTorch does it
    s[1] = beta2 * s[1] + fresh2 * g * g;
    return w - step_size * (s[0] / (root(s[1]) / root_correction2 + eps));
  }
};

/// s[0]: square_avg, s[1]: the momentum buffer.
template <class C>
struct RmspropRule {
  C lr, weight_decay, alpha, fresh, eps, momentum;

  constexpr RmspropRule(const GroupControl& g, const RmspropConstants& c, const Progress&)
      : lr(static_cast<C>(g.lr)),
        weight_decay(static_cast<C>(g.weight_decay)),
        alpha(static_cast<C>(g.beta2)),
        fresh(static_cast<C>(1 - g.beta2)),
        eps(static_cast<C>(c.eps)),
        momentum(static_cast<C>(g.momentum)) {}

  template <class V, class Root>
  [[gnu::always_inline]] constexpr V operator()(V w, V g, V* s, Root root) const {
    if (weight_decay != 0) g = g + weight_decay * w;
    s[0] = alpha * s[0] + fresh * g * g;
    V direction = g / (root(s[0]) + eps);
    if (momentum != 0) direction = s[1] = momentum * s[1] + direction;
    return w - lr * direction;
  }
};

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::rules
