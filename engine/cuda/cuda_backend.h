#pragma once
// The GPU's side of the seam. Each group of methods is in the file of its name: elementwise.cpp and others make plans of
// views, which the kernels in the .cu files run; gemm.cpp calls cuBLAS, conv.cpp, batch_norm.cpp and pool.cpp call cuDNN;
// graph.cpp captures work; the rest is in cuda_backend.cpp.

#include <memory>
#include <mutex>
#include <optional>

#include "engine/backend.h"
#include "engine/cuda/allocator.h"
#include "engine/cuda/pinned.h"
#include "engine/cuda/runtime.h"

namespace halfgrad {

namespace cuda {
class Blas;
class Dnn;
struct BadIndex;
struct RandomBase;
enum class ConvPass;
}  // namespace cuda

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index, cuda::CachingAllocator::Mode mode);
  ~CudaBackend() override;

  Device device() const override { return Device::cuda(index_); }
  Allocator& allocator() override { return allocator_; }

  void copy_from_host(void* to, const void* from, std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  std::unique_ptr<Download> download(const void* from, std::size_t bytes) override;
  Allocator& upload_allocator() override { return upload_allocator_; }
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

  void synchronize() override;

  /// y = activation(y), where no library has done it on its way.
  void activate(const View& y, Activation activation);

 private:
  friend class CapturedCudaWork;

  /// The stream that all work of this backend goes through; makes the GPU that of the calling thread.
  cuda::Queue queue();
  /// Error while work is being captured: `what` cannot be part of it.
  void check_not_capturing(const char* what) const;
  /// Error for an index that a kernel found out of range.
  void throw_for(const cuda::BadIndex& bad);
  /// Where random numbers begin that the generator's `offset` belongs to, if captured work draws them; else null.
  const cuda::RandomBase* random_base(std::uint64_t offset) const;
  /// The libraries, which are set up when they are first needed.
  cuda::Blas& blas();
  cuda::Dnn& dnn();
  void convolve(cuda::ConvPass pass, const View& x, const View& w, const View& y, const View& bias,
                const Conv2dGeometry&, Activation activation);

  const int index_;
  const int multiprocessors_;
  cuda::Stream stream_;
  const cuda::Stream upload_stream_;  // copies that run beside the work of the other
  cuda::CachingAllocator allocator_;
  std::once_flag blas_once_, dnn_once_;
  std::unique_ptr<cuda::Blas> blas_;
  std::unique_ptr<cuda::Dnn> dnn_;
  cuda::StreamAllocator upload_allocator_;
  cuda::PinnedPool pinned_;
  std::optional<Storage> blocks_done_;  // a counter of optimizer.cu, 0 between launches
  Storage bad_index_;                   // a BadIndex
  Storage random_base_;                 // where the random numbers of a captured work begin: seed and offset
  bool capturing_ = false;
  std::uint64_t captured_offset_ = 0;  // of the generator, when the capture began
};

}  // namespace halfgrad
