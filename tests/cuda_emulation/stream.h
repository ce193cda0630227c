#pragma once
// Streams and events. A stream keeps what is put into it and does it when somebody waits: cudaStreamSynchronize, an event
// that is waited for, or cudaFree. So whoever forgets to wait reads memory in which nothing has happened yet.

#include <cuda_runtime.h>

#include <functional>
#include <mutex>

namespace cuda_emulation {

/// Everything happens under one lock: the calls of all threads, and the kernels that they set off.
std::recursive_mutex& everything();

void enqueue(cudaStream_t stream, std::function<void()> work);
/// Does all that is in all streams.
void finish_all_streams();

/// A stream is being captured in a mode in which nobody may ask for memory.
bool anything_is_captured();

/// What cudaGetLastError() returns next, on this thread.
extern thread_local cudaError_t last_error;
/// Keeps a failure for cudaGetLastError().
inline cudaError_t result(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

}  // namespace cuda_emulation
