#pragma once
// The CPU's side of the seam. Each group of methods is implemented in the file of its name, as a plan over the kernels
// of kernels.h: elementwise.cpp, reduce.cpp, gemm.cpp, conv.cpp, pool.cpp, norm.cpp, softmax.cpp, index.cpp,
// random.cpp, optimizer.cpp; the rest is in cpu_backend.cpp.

#include <cstring>

#include "engine/backend.h"

namespace halfgrad {

class CpuBackend final : public Backend {
 public:
  Device device() const override { return Device::cpu(); }
  Allocator& allocator() override;

  void copy_from_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  std::unique_ptr<Download> download(const void* from, std::size_t bytes) override;
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work, std::uint64_t offset) override;
  void check_index(const char* op, const View& out, const View& index, std::int64_t size) override;

  void unary(int op, const double* params, DType compute, const View& y, const View& x) override;
  void unary_backward(int op, const double* params, const View& dx, const View& dy, const View& x,
                      const View& y) override;
  void binary(int op, DType compute, const View& y, const View& a, const View& b) override;
  void binary_backward(int op, const View& da, const View& db, const View& dy, const View& a, const View& b,
                       const View& y) override;
  void select(const View& y, const View& condition, const View& a, const View& b) override;
  void copy(const View& dst, const View& src) override;

  void reduce(ReduceOp op, const View& y, const View& x, double scale) override;
  void arg_reduce(Extremum op, const View& y, const View& x, int dim) override;
  void cumsum(const View& y, const View& x, int dim, bool reverse) override;

  void gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation) override;
  void conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry&,
              Activation activation) override;
  void conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias,
                             const Conv2dGeometry&) override;
  void conv2d_backward_weight(const View& dw, const View& x, const View& dy, const Conv2dGeometry&) override;

  void max_pool2d(const View& y, const View& index, const View& x, const PoolGeometry&) override;
  void max_pool2d_backward(const View& dx, const View& dy, const View& index) override;
  void avg_pool2d(const View& y, const View& x, const PoolGeometry&) override;
  void avg_pool2d_backward(const View& dx, const View& dy, const PoolGeometry&) override;

  void batch_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                  const View& bias, double eps, Activation activation) override;
  void normalize_channels(const View& y, const View& x, const View& mean, const View& rstd, const View& weight,
                          const View& bias, Activation activation) override;
  void batch_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy, const View& x,
                           const View& mean, const View& rstd, const View& weight, const View& bias, bool training,
                           Activation activation) override;
  void layer_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                  const View& bias, double eps) override;
  void layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy, const View& x,
                           const View& mean, const View& rstd, const View& weight) override;

  void softmax(const View& y, const View& x, int dim, bool log) override;
  void softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) override;
  void cross_entropy(const View& loss, const View& share, const View& most, const View& log_sum, const View& x,
                     const View& target, const CrossEntropyTerms&) override;
  void cross_entropy_backward(const View& dx, const View& dy, const View& divisor, const View& most,
                              const View& log_sum, const View& x, const View& target,
                              const CrossEntropyTerms&) override;

  void gather(const View& y, const View& x, const View& index, int dim) override;
  void scatter_add(const View& y, const View& index, const View& src, int dim) override;
  void index_select(const View& y, const View& x, const View& index, int dim) override;
  void index_add(const View& y, const View& index, const View& src, int dim) override;

  void random(Distribution kind, const View& y, double a, double b, std::uint64_t seed, std::uint64_t offset) override;
  void dropout(const View& y, const View& x, double p, std::uint64_t seed, std::uint64_t offset) override;

  void grad_stats(GradStats* stats, std::int64_t groups, std::span<const GroupedGrad> grads) override;
  void decide_step(GroupControl* control, std::int64_t groups, const GradStats* stats, LossScaler* scaler,
                   const StepRule& rule, const double* loss, std::span<std::int64_t* const> steps) override;
  void sgd_step(std::span<const OptimizerStep> steps, const GroupControl* control, double dampening,
                bool nesterov) override;
  void adam_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps,
                 bool decoupled) override;
  void rmsprop_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps) override;

  void synchronize() override {}
};

namespace cpu {
/// The one instance.
Backend& backend();
}  // namespace cpu

}  // namespace halfgrad
