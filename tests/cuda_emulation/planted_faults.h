#pragma once
// Programs with one mistake each, of the kinds that GPU code is prone to. test_planted_faults.cpp runs them.

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_array.h"

namespace cuda_emulation::testing {

struct Fault {
  const char* name;
  std::function<void()> program;
  const char* noticed;  ///< a part of the line that says so
};

std::vector<Fault> faults_of_waiting();    ///< somebody goes on before others are done
std::vector<Fault> faults_of_memory();     ///< bounds, lifetimes, whose memory it is
std::vector<Fault> faults_of_threads();    ///< launches, and the threads of a block among each other
std::vector<Fault> faults_of_libraries();  ///< what cuBLAS, cuBLASLt and cuDNN are told
std::vector<Fault> faults_of_graphs();     ///< what is captured, and its memory
/// Programs of faults_of_graphs() and faults_of_libraries() without a fault.
void use_graphs_correctly();
void use_libraries_correctly();

/// What a program does that sees its own wrong result.
inline constexpr const char* kWrongResult = "the result is wrong";
inline void expect(bool right) {
  if (!right) throw std::runtime_error(kWrongResult);
}

// --- kernels that are right in themselves ----------------------------------------------------------------------------

__global__ inline void fill(float* y, int n, float value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = value;
}
__global__ inline void add(float* y, const float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += x[i];
}

}  // namespace cuda_emulation::testing
