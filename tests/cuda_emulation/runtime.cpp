// The CUDA runtime but for streams (stream.cpp): devices, errors, memory and copies.

#include <cstdlib>
#include <cstring>

#include "cuda_emulation.h"

namespace cuda_emulation {

bool can_launch(dim3 grid, dim3 block) {
  const bool possible = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535 && block.x > 0 &&
                        block.y > 0 && block.z > 0 && block.z <= 64 &&
                        std::uint64_t{block.x} * block.y * block.z <= 1024;
  if (!possible) last_error = cudaErrorInvalidConfiguration;
  return possible;
}

namespace {

// The device's side of a copy must be in one block, the host's in none.
bool is_possible(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device ? is_in_a_block(to, bytes) : !is_device_memory(to)) &&
         (from_device ? is_in_a_block(from, bytes) : !is_device_memory(from));
}

struct NamedError {
  cudaError_t status;
  const char* name;
  const char* text;
};
constexpr NamedError kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
};

const NamedError& named(cudaError_t status) {
  for (const NamedError& error : kErrors)
    if (error.status == status) return error;
  fault("the emulation has no name for the CUDA error " + std::to_string(static_cast<int>(status)));
}

}  // namespace

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

// --- devices ---------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  if (options().no_gpu) return result(cudaErrorNoDevice);  // and leaves *count as it is, like the real one
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  // A single multiprocessor: grids are small, so that kernels step through their work even in tests.
  if (attribute != cudaDevAttrMultiProcessorCount) return result(cudaErrorInvalidValue);
  *value = 1;
  return cudaSuccess;
}

// --- errors ----------------------------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t status) { return named(status).name; }
const char* cudaGetErrorString(cudaError_t status) { return named(status).text; }

// --- memory ----------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  const std::lock_guard lock(everything());
  if (anything_is_captured()) return result(cudaErrorStreamCaptureUnsupported);
  *address = bytes > 0 ? allocate(bytes) : nullptr;
  return result(*address || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  const std::lock_guard lock(everything());
  if (!address) return cudaSuccess;
  finish_all_streams();
  return result(release(address) ? cudaSuccess : cudaErrorInvalidValue);
}

// Host memory needs nothing here; it is "pinned" for the sake of speed.
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = std::malloc(bytes);
  return result(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* address) {
  const std::lock_guard lock(everything());
  finish_all_streams();
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(everything());
  *total = kCapacity;
  *free = kCapacity - bytes_in_use();
  return cudaSuccess;
}

// --- copies: the host's memory is read and written late, as by a GPU that takes its time -----------------------------

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  if (bytes > 0 && !is_possible(to, from, bytes, kind)) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    const DeviceAccess access;
    if (bytes > 0) std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  if (bytes > 0 && !is_in_a_block(to, bytes)) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    const DeviceAccess access;
    if (bytes > 0) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
