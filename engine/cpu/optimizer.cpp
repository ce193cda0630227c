// Optimizer steps and gradient statistics on the CPU: memory-bound passes, cut into chunks for the threads.

#include <cmath>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"

namespace halfgrad {

namespace {

using cpu::FloatArray;
using cpu::FloatType;
using cpu::kernels;
using cpu::parallel_for;
using cpu::UpdateWork;

constexpr std::int64_t kChunk = 1 << 14;

FloatArray array_of(const View& view) {
  const FloatType type = view.dtype == f16 ? FloatType::f16 : view.dtype == f32 ? FloatType::f32 : FloatType::f64;
  return {view.data, type};
}

// One pass over every parameter whose group takes this step.
template <class Kernel, class Constants>
void update_all(std::span<const OptimizerStep> steps, const GroupControl* control, Kernel kernel,
                const Constants& constants) {
  for (const OptimizerStep& step : steps) {
    if (control[step.group].skip != 0) continue;
    const std::int64_t t = *step.steps;
    const UpdateWork work{.param = array_of(step.param),
                          .master = array_of(step.master),
                          .grad = array_of(step.grad),
                          .state = {step.state[0].data, step.state[1].data},
                          .control = control[step.group],
                          .progress = {.step = t, .first = t == step.state_made_at + 1}};
    parallel_for(step.param.numel(), kChunk,
                 [&](std::int64_t begin, std::int64_t end) { kernel(work, constants, begin, end); });
  }
}

GradStats stats_of(const FloatArray& grad, std::int64_t n) {
  struct Partial {
    double sum_of_squares = 0;
    std::int64_t non_finite = 0;
  };
  std::vector<Partial> partials(static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  parallel_for(n, kChunk, [&](std::int64_t begin, std::int64_t end) {
    Partial& partial = partials[static_cast<std::size_t>(begin / kChunk)];
    kernels().optimizer.grad_stats(grad, begin, end, &partial.sum_of_squares, &partial.non_finite);
  });
  GradStats total;
  for (const Partial& partial : partials) {
    total.sum_of_squares += partial.sum_of_squares;
    total.non_finite += static_cast<double>(partial.non_finite);
  }
  return total;
}

}  // namespace

void CpuBackend::grad_stats(GradStats* stats, std::int64_t groups, std::span<const GroupedGrad> grads) {
  std::fill_n(stats, groups, GradStats());
  for (const GroupedGrad& grad : grads) {
    const GradStats one = stats_of(array_of(grad.grad), grad.grad.numel());
    stats[grad.group].sum_of_squares += one.sum_of_squares;
    stats[grad.group].non_finite += one.non_finite;
  }
}

void CpuBackend::decide_step(GroupControl* control, std::int64_t groups, const GradStats* stats, LossScaler* scaler,
                             const StepRule& rule, const double* loss, std::span<std::int64_t* const> steps) {
  decide(control, groups, stats, scaler, rule, loss, [](double x) { return std::sqrt(x); });
  if (groups > 0 && control[0].skip != 0) return;
  for (std::int64_t* count : steps) ++*count;
}

void CpuBackend::sgd_step(std::span<const OptimizerStep> steps, const GroupControl* control, double dampening,
                          bool nesterov) {
  update_all(steps, control, kernels().optimizer.sgd, rules::SgdConstants{dampening, nesterov});
}

void CpuBackend::adam_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps,
                           bool decoupled) {
  update_all(steps, control, kernels().optimizer.adam, rules::AdamConstants{eps, decoupled});
}

void CpuBackend::rmsprop_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps) {
  update_all(steps, control, kernels().optimizer.rmsprop, rules::RmspropConstants{eps});
}

}  // namespace halfgrad
