#include "engine/cuda/runtime.h"

#include "engine/error.h"

namespace halfgrad::cuda {

namespace {

// Reported by whatever call comes after the kernel that is at fault.
bool comes_late(cudaError_t status) {
  return status == cudaErrorIllegalAddress || status == cudaErrorMisalignedAddress ||
         status == cudaErrorLaunchFailure || status == cudaErrorLaunchTimeout || status == cudaErrorAssert;
}

std::string describe(cudaError_t status) {
  return fmt::format("{} ({}){}", cudaGetErrorString(status), cudaGetErrorName(status),
                     comes_late(status) ? "; a kernel that was launched earlier is at fault: run again with "
                                          "CUDA_LAUNCH_BLOCKING=1 to see which"
                                        : "");
}

}  // namespace

void fail_call(cudaError_t status, const char* call) {
  cudaGetLastError();  // or the next launch would report this error once more
  fail("cuda: {} failed: {}", call, describe(status));
}

void check_launch(const char* kernel) {
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) [[unlikely]]
    fail("cuda: the launch of kernel {} failed: {}", kernel, describe(status));
}

Gpus find_gpus() {
  Gpus gpus;  // the count stays as it is when the call fails
  if (const cudaError_t status = cudaGetDeviceCount(&gpus.count); status != cudaSuccess) {
    cudaGetLastError();
    return {0, describe(status)};
  }
  if (gpus.count == 0) gpus.why_none = "the driver knows of none";
  return gpus;
}

void use_device(int device) { HALFGRAD_CUDA(cudaSetDevice(device)); }

Event::Event() { HALFGRAD_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}
void Event::record(cudaStream_t stream) { HALFGRAD_CUDA(cudaEventRecord(event_, stream)); }
bool Event::passed() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check_call(status, "cudaEventQuery(event)");
  return true;
}

void Event::wait() const { HALFGRAD_CUDA(cudaEventSynchronize(event_)); }

Stream::Stream() { HALFGRAD_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::wait_for(const Stream& other) {
  Event event;
  event.record(other.get());
  HALFGRAD_CUDA(cudaStreamWaitEvent(stream_, event.get(), 0));
}
void Stream::synchronize() const { HALFGRAD_CUDA(cudaStreamSynchronize(stream_)); }

}  // namespace halfgrad::cuda
