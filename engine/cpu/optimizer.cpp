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

UpdateWork work_of(const OptimizerStep& step) {
  return {.param = array_of(step.param),
          .master = array_of(step.master),
          .grad = array_of(step.grad),
          .grad_scale = step.grad_scale,
          .lr = step.lr,
          .weight_decay = step.weight_decay};
}

}  // namespace

void CpuBackend::sgd_step(const OptimizerStep& step, const View& momentum_buffer, double momentum, double dampening,
                          bool nesterov, bool first) {
  const UpdateWork work = work_of(step);
  const cpu::SgdConstants constants{momentum, dampening, nesterov, first};
  parallel_for(step.param.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    kernels().optimizer.sgd(work, momentum_buffer.data, constants, begin, end);
  });
}

void CpuBackend::adam_step(const OptimizerStep& step, const View& exp_avg, const View& exp_avg_sq, double beta1,
                           double beta2, double eps, std::int64_t t, bool decoupled) {
  const UpdateWork work = work_of(step);
  const auto power = static_cast<double>(t);
  const cpu::AdamConstants constants{.beta1 = beta1,
                                     .beta2 = beta2,
                                     .eps = eps,
                                     .bias_correction1 = 1 - std::pow(beta1, power),
                                     .bias_correction2 = 1 - std::pow(beta2, power),
                                     .decoupled = decoupled};
  parallel_for(step.param.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    kernels().optimizer.adam(work, exp_avg.data, exp_avg_sq.data, constants, begin, end);
  });
}

void CpuBackend::rmsprop_step(const OptimizerStep& step, const View& square_avg, const View& momentum_buffer,
                              double alpha, double eps, double momentum) {
  const UpdateWork work = work_of(step);
  const cpu::RmspropConstants constants{alpha, eps, momentum};
  parallel_for(step.param.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    kernels().optimizer.rmsprop(work, square_avg.data, momentum_buffer.data, constants, begin, end);
  });
}

void CpuBackend::grad_stats(const View& stats, const View& g) {
  struct Partial {
    double sum_of_squares = 0;
    std::int64_t non_finite = 0;
  };
  const std::int64_t n = g.numel();
  const FloatArray grad = array_of(g);
  std::vector<Partial> partials(static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  parallel_for(n, kChunk, [&](std::int64_t begin, std::int64_t end) {
    Partial& partial = partials[static_cast<std::size_t>(begin / kChunk)];
    kernels().optimizer.grad_stats(grad, begin, end, &partial.sum_of_squares, &partial.non_finite);
  });
  double* total = stats.as<double>();
  for (const Partial& partial : partials) {
    total[0] += partial.sum_of_squares;
    total[1] += static_cast<double>(partial.non_finite);
  }
}

}  // namespace halfgrad
