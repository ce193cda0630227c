// The kernels that the CUDA backend does not have yet.

#include "engine/cuda/cuda_backend.h"
#include "engine/error.h"

namespace halfgrad {

namespace {

[[noreturn]] void not_yet(const char* kernel) {
  fail("cuda: the kernel {} is not in this build yet; use the device cpu for what needs it", kernel);
}

}  // namespace

void CudaBackend::grad_stats(const View&, const View&) { not_yet("grad_stats"); }
void CudaBackend::sgd_step(const OptimizerStep&, const View&, double, double, bool, bool) { not_yet("sgd_step"); }
void CudaBackend::adam_step(const OptimizerStep&, const View&, const View&, double, double, double, std::int64_t,
                            bool) {
  not_yet("adam_step");
}
void CudaBackend::rmsprop_step(const OptimizerStep&, const View&, const View&, double, double, double) {
  not_yet("rmsprop_step");
}

}  // namespace halfgrad
