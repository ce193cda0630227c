#pragma once
// The CUDA runtime with failures as Errors and with handles that are owned.

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

/// Calls the CUDA runtime and throws Error, which names the call, unless it succeeds:
/// `HALFGRAD_CUDA(cudaStreamSynchronize(stream))`.
#define HALFGRAD_CUDA(call) ::halfgrad::cuda::check_call(call, #call)

namespace halfgrad::cuda {

[[noreturn]] void fail_call(cudaError_t status, const char* call);
inline void check_call(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail_call(status, call);
}
/// Throws Error that names the kernel when its launch was refused. What goes wrong while it runs is reported by a later
/// call.
void check_launch(const char* kernel);

/// The GPUs that answer.
struct Gpus {
  int count = 0;
  std::string why_none;  ///< what the driver said, when there are none
};
Gpus find_gpus();

/// Makes `device` the one that the calls of this thread mean.
void use_device(int device);

/// Where kernels go, and what tells how many blocks fill the GPU.
struct Queue {
  cudaStream_t stream;
  int multiprocessors;
};

/// A point in the work of a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  Event(const Event&) = delete;
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  /// The work before the recorded point is done (or nothing was recorded).
  bool passed() const;
  /// Returns when it is.
  void wait() const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A queue of work, which runs in its order and beside other queues. It does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// What is put into this stream from now on runs after what was put into `other` before.
  void wait_for(const Stream& other);
  /// Returns when everything in the stream is done.
  void synchronize() const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace halfgrad::cuda
