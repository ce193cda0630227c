#pragma once
// Matrix products on the CPU: the plan over kernels/gemm.h.

#include "engine/backend.h"

namespace halfgrad::cpu {

/// c[i] = activation(a[i] x b[i] + bias), as Backend::gemm.
void gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation);

}  // namespace halfgrad::cpu
