#pragma once
// How kernels are launched, and the only file that knows who compiles them: nvcc, for a GPU, or an ordinary C++ compiler,
// for the emulation of tests/cuda_emulation, which runs them on the CPU.
//
// What is compiled by nvcc includes no header that includes fmt (error.h, shape.h and all above them): nvcc does not
// understand it. So .cu files get plain structs and pointers, made in the .cpp file beside them.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "engine/cuda/runtime.h"

#if defined(__CUDACC__)
/// An array of `count` T that the threads of a block share: HALFGRAD_SHARED(float, sums, 32);
#define HALFGRAD_SHARED(T, name, count) __shared__ T name[count]
#else
#include "cuda_emulation.h"
#define HALFGRAD_SHARED(T, name, count) T* const name = ::cuda_emulation::shared_array<T>(count)
#endif

namespace halfgrad::cuda {

inline constexpr unsigned kThreads = 256;  ///< per block

/// Enough blocks for one thread per item, or as many as the GPU runs at a time: a kernel steps over the items by the size
/// of its grid.
inline dim3 grid_for(std::uint64_t items, const Queue& queue) {
  const std::uint64_t blocks = (items + kThreads - 1) / kThreads;
  const std::uint64_t resident = static_cast<std::uint64_t>(queue.multiprocessors) * (2048 / kThreads);
  return dim3(static_cast<unsigned>(blocks < resident ? blocks : resident));
}

/// kernel<<<grid, block, 0, stream>>>(arguments...). `name` is for errors: what the user knows, "unary exp".
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
#if defined(__CUDACC__)
  kernel<<<grid, block, 0, stream>>>(static_cast<Parameters>(arguments)...);
#else
  ::cuda_emulation::launch(name, kernel, grid, block, stream, arguments...);
#endif
  check_launch(name);
}

/// Memory that is read and written as T, whose alignment it must have.
template <class T>
__device__ inline T* aligned(void* data) {
#if !defined(__CUDACC__)
  ::cuda_emulation::check_alignment(data, alignof(T));
#endif
  return static_cast<T*>(data);
}
template <class T>
__device__ inline const T* aligned(const void* data) {
  return aligned<T>(const_cast<void*>(data));
}

/// The first item of this thread, and the distance to its next.
__device__ inline std::uint64_t first_item() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::uint64_t item_step() { return std::uint64_t{gridDim.x} * blockDim.x; }

}  // namespace halfgrad::cuda
