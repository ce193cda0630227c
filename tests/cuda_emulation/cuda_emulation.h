#pragma once
// CUDA on a CPU: the files of engine/cuda, compiled by an ordinary C++ compiler against the real headers of the toolkit and
// linked with this folder in place of libcudart. It runs what a GPU would run, slowly, and notices what a GPU would punish:
//
//   fiber.h            stacks that can be switched
//   block.h            the threads of a block as fibers: barriers, warps, shared memory
//   device_functions.h what a kernel may call: threadIdx, __syncthreads, shuffles, atomics
//   memory.h           device memory: poisoned before it is written, guarded behind its end, closed to the host
//   stream.h           streams that do nothing until somebody waits for them, so that a forgotten wait shows
//   runtime.cpp        the rest of the CUDA runtime: devices, errors, copies
//   library.h          cuBLAS, cuBLASLt and cuDNN (cublas.cpp, cublaslt.cpp, cudnn.cpp, cudnn_norm_pool.cpp): plain loops
//                      behind the same calls, which refuse what the real ones refuse
//   report.h           how a fault is reported: one line, and the end of the program
//
// It cannot show speed, the rounding of tensor cores or of fast functions, or what a driver would refuse.

#if defined(__CUDACC__)
#error "the emulation is not for nvcc"
#endif

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "block.h"
#include "device_functions.h"
#include "memory.h"
#include "stream.h"

namespace cuda_emulation {

/// True when a kernel can be launched like this; else the error is what cudaGetLastError() returns next.
bool can_launch(dim3 grid, dim3 block);

template <class T>
void check_argument(const char* kernel, const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    if (argument && !is_device_memory(argument))
      fault(std::string("kernel ") + kernel + " is given a pointer that is not to device memory");
  }
}

/// kernel<<<grid, block, 0, stream>>>(arguments...)
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  if (!can_launch(grid, block)) return;
  const std::tuple<std::decay_t<Parameters>...> copies(
      static_cast<Parameters>(arguments)...);  // as a launch makes them
  std::apply([&](const auto&... argument) { (check_argument(name, argument), ...); }, copies);
  enqueue(stream, [=] { run_kernel({name, grid, block, [&] { std::apply(kernel, copies); }}); });
}

/// Vector accesses need memory that is aligned like the vector.
inline void check_alignment(const void* address, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    fault("misaligned access: " + std::to_string(alignment) +
          " bytes at once, at an address that is no multiple of it");
}

}  // namespace cuda_emulation
