#include "engine/cpu/cpu_backend.h"
#include "engine/error.h"
#include "engine/tensor.h"
// Scaffolding until every family of kernels has landed.
namespace halfgrad {
__attribute__((weak)) void CpuBackend::unary(int, const double*, DType, const View&, const View&) { fail("unary: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::unary_backward(int, const double*, const View&, const View&, const View&, const View&) { fail("unary_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::binary(int, DType, const View&, const View&, const View&) { fail("binary: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::binary_backward(int, const View&, const View&, const View&, const View&, const View&, const View&) { fail("binary_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::select(const View&, const View&, const View&, const View&) { fail("select: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::copy(const View&, const View&) { fail("copy: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::reduce(ReduceOp, const View&, const View&, double) { fail("reduce: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::arg_reduce(Extremum, const View&, const View&, int) { fail("arg_reduce: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::cumsum(const View&, const View&, int, bool) { fail("cumsum: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::gemm(const View&, const View&, const View&, const View&) { fail("gemm: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::conv2d(const View&, const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::conv2d_backward_input(const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d_backward_input: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::conv2d_backward_weight(const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d_backward_weight: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::max_pool2d(const View&, const View&, const View&, const PoolGeometry&) { fail("max_pool2d: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::max_pool2d_backward(const View&, const View&, const View&) { fail("max_pool2d_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::avg_pool2d(const View&, const View&, const PoolGeometry&) { fail("avg_pool2d: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::avg_pool2d_backward(const View&, const View&, const PoolGeometry&) { fail("avg_pool2d_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::batch_norm(const View&, const View&, const View&, const View&, const View&, const View&, double) { fail("batch_norm: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::normalize_channels(const View&, const View&, const View&, const View&, const View&, const View&) { fail("normalize_channels: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::batch_norm_backward(const View&, const View&, const View&, const View&, const View&, const View&, const View&, const View&, bool) { fail("batch_norm_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::layer_norm(const View&, const View&, const View&, const View&, const View&, const View&, double) { fail("layer_norm: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::layer_norm_backward(const View&, const View&, const View&, const View&, const View&, const View&, const View&, const View&) { fail("layer_norm_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::softmax(const View&, const View&, int, bool) { fail("softmax: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::softmax_backward(const View&, const View&, const View&, int, bool) { fail("softmax_backward: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::gather(const View&, const View&, const View&, int) { fail("gather: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::scatter_add(const View&, const View&, const View&, int) { fail("scatter_add: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::index_select(const View&, const View&, const View&, int) { fail("index_select: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::index_add(const View&, const View&, const View&, int) { fail("index_add: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::random(Distribution, const View&, double, double, std::uint64_t, std::uint64_t) { fail("random: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::grad_stats(const View&, const View&) { fail("grad_stats: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::sgd_step(const OptimizerStep&, const View&, double, double, bool, bool) { fail("sgd_step: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::adam_step(const OptimizerStep&, const View&, const View&, double, double, double, std::int64_t, bool) { fail("adam_step: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::rmsprop_step(const OptimizerStep&, const View&, const View&, double, double, double) { fail("rmsprop_step: kernel not landed yet"); }
__attribute__((weak)) Tensor sum(const Tensor&, const Shape&, bool) { fail("sum: not landed yet"); }
}
