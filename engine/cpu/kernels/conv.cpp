#include "engine/cpu/kernels/conv.h"
#include "engine/cpu/simd.h"
namespace halfgrad::cpu::HALFGRAD_ISA {
ConvKernels conv_kernels() { return {}; }
}
