#pragma once
// Device memory for the tests of the emulation, with nothing between them and the CUDA runtime.

#include <vector>

#include "engine/cuda/launch.cuh"

namespace cuda_emulation::testing {

using halfgrad::cuda::check_call;
using halfgrad::cuda::launch;
using halfgrad::cuda::Stream;

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : n_(n) {
    HALFGRAD_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)));
  }
  DeviceArray(const std::vector<T>& values, const Stream& stream) : DeviceArray(values.size()) {
    HALFGRAD_CUDA(cudaMemcpyAsync(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice, stream.get()));
    stream.synchronize();
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t bytes() const { return n_ * sizeof(T); }
  /// The values, once the stream has come so far.
  std::vector<T> values(const Stream& stream) const {
    std::vector<T> host(n_);
    HALFGRAD_CUDA(cudaMemcpyAsync(host.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream.get()));
    stream.synchronize();
    return host;
  }

 private:
  std::size_t n_;
  T* data_ = nullptr;
};

}  // namespace cuda_emulation::testing
