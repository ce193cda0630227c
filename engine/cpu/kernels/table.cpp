// Collects the families of kernels of one instruction set.

#include "engine/cpu/kernels.h"

#define HALFGRAD_TEXT(x) #x
#define HALFGRAD_TEXT_OF(x) HALFGRAD_TEXT(x)

namespace halfgrad::cpu::HALFGRAD_ISA {

ElementwiseKernels elementwise_kernels();
GemmKernels gemm_kernels();
ConvKernels conv_kernels();
RandomKernels random_kernels();
OptimizerKernels optimizer_kernels();
PoolKernels pool_kernels();
NormKernels norm_kernels();
ReduceKernels reduce_kernels();
SoftmaxKernels softmax_kernels();

// A function, not a variable: a variable would be initialised at program start by code for this instruction set,
// before anybody has asked whether the machine has it.
Kernels make_kernels() {
  Kernels table;
  table.isa = HALFGRAD_TEXT_OF(HALFGRAD_ISA);
  table.elementwise = elementwise_kernels();
  table.gemm = gemm_kernels();
  table.conv = conv_kernels();
  table.random = random_kernels();
  table.optimizer = optimizer_kernels();
  table.pool = pool_kernels();
  table.norm = norm_kernels();
  table.reduce = reduce_kernels();
  table.softmax = softmax_kernels();
  return table;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
