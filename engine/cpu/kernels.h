#pragma once
// The table of CPU kernels: inner loops that are compiled once per instruction set and chosen at run time.
//
// To add a family of kernels `foo`:
//   1. engine/cpu/kernels/foo.h    struct FooKernels, plain function pointers, in namespace halfgrad::cpu
//   2. engine/cpu/kernels/foo.cpp  FooKernels foo_kernels() { return {...}; } in namespace halfgrad::cpu::HALFGRAD_ISA
//   3. a member of Kernels below, its line in kernels/table.cpp, and foo.cpp in kernel_sources of engine/meson.build
//   4. engine/cpu/foo.cpp          the methods of CpuBackend: plan, split over threads, call kernels().foo
//
// A file in engine/cpu/kernels/ exists several times in the program, compiled with different -m flags. Whatever it
// defines must be inside HALFGRAD_ISA, because of two functions of the same name the linker keeps one, and it could
// be the one for a newer machine. That goes for inline functions and templates of headers too: include only what
// simd.h includes, and write __builtin_sqrtf or simd.h's functions, not std::sqrt or std::max.

#include "engine/cpu/kernels/conv.h"
#include "engine/cpu/kernels/elementwise.h"
#include "engine/cpu/kernels/gemm.h"
#include "engine/cpu/kernels/norm.h"
#include "engine/cpu/kernels/optimizer.h"
#include "engine/cpu/kernels/pool.h"
#include "engine/cpu/kernels/random.h"
#include "engine/cpu/kernels/reduce.h"
#include "engine/cpu/kernels/softmax.h"

namespace halfgrad::cpu {

struct Kernels {
  const char* isa;  ///< "baseline", "avx2" or "avx512"
  ElementwiseKernels elementwise;
  GemmKernels gemm;
  ConvKernels conv;
  RandomKernels random;
  OptimizerKernels optimizer;
  PoolKernels pool;
  NormKernels norm;
  ReduceKernels reduce;
  SoftmaxKernels softmax;
};

/// The kernels for the best instruction set that this machine has, or the one named by the environment variable
/// HALFGRAD_ISA. Throws Error when that name is unknown or the machine lacks it.
const Kernels& kernels();

/// The kernels for one instruction set; nullptr when this program or this machine does not have it. For tests.
const Kernels* kernels_for(const char* isa);

/// Makes kernels() return these from now on. For tests and benchmarks.
void use_kernels(const Kernels& table);

/// The names that kernels_for() may know, ending with nullptr.
inline constexpr const char* kIsaNames[] = {"baseline", "avx2", "avx512", nullptr};

}  // namespace halfgrad::cpu
