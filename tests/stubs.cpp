#include "engine/cpu/cpu_backend.h"
#include "engine/error.h"
#include "engine/tensor.h"
// Scaffolding until every family of kernels has landed.
namespace halfgrad {
__attribute__((weak)) void CpuBackend::conv2d(const View&, const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::conv2d_backward_input(const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d_backward_input: kernel not landed yet"); }
__attribute__((weak)) void CpuBackend::conv2d_backward_weight(const View&, const View&, const View&, const Conv2dGeometry&) { fail("conv2d_backward_weight: kernel not landed yet"); }
}
