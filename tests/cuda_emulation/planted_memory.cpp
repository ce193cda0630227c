#include <cmath>

#include "planted_faults.h"

namespace cuda_emulation::testing {

namespace {

__global__ void fill_one_too_many(float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i <= n) y[i] = 1;
}
__global__ void follow(float** pointer) { **pointer = 1; }
__global__ void write_before(float* y) { y[-1] = 1; }
__global__ void read_four_at_once(const float* x, float* y) {
  const float4 four = *halfgrad::cuda::aligned<float4>(x + 1);
  y[0] = four.x;
}

}  // namespace

std::vector<Fault> faults_of_memory() {
  return {
      {"memory is read that was never written",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64), y(std::vector<float>(64, 1.0F), stream);
         launch("add", add, 1, 64, stream.get(), y.data(), x.data(), 64);
         expect(!std::isnan(y.values(stream)[0]));
       },
       kWrongResult},
      {"one element too many is written, where the memory ends",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("fill", fill_one_too_many, 1, 128, stream.get(), x.data(), 64);
         stream.synchronize();
       },
       "out of bounds: byte 256 of a block of 256 bytes [kernel fill, block (0, 0, 0), thread (64, 0, 0)]"},
      {"one element too many is written, into what is left of 256 bytes",
       [] {
         const Stream stream;
         const DeviceArray<float> x(50);
         launch("fill", fill_one_too_many, 1, 64, stream.get(), x.data(), 50);
         stream.synchronize();
       },
       "out of bounds: kernel fill wrote byte 200 of a block of 200 bytes"},
      {"an element before the first is written",
       [] {
         const Stream stream;
         const DeviceArray<float> x(50);
         launch("before", write_before, 1, 1, stream.get(), x.data());
         stream.synchronize();
       },
       "out of bounds: kernel before wrote byte -4 of a block of 200 bytes"},
      {"a kernel follows a pointer to nowhere",
       [] {
         const Stream stream;
         // NOLINTNEXTLINE(performance-no-int-to-ptr)
         const DeviceArray<float*> pointer({reinterpret_cast<float*>(0x1000)}, stream);
         launch("follow", follow, 1, 1, stream.get(), pointer.data());
         stream.synchronize();
       },
       "out of bounds: address 0x1000 is in no block [kernel follow, block (0, 0, 0), thread (0, 0, 0)]"},
      {"memory is used after it was freed",
       [] {
         const Stream stream;
         float* x = nullptr;
         HALFGRAD_CUDA(cudaMalloc(reinterpret_cast<void**>(&x), 256));
         HALFGRAD_CUDA(cudaFree(x));
         const DeviceArray<float*> pointer({x}, stream);
         launch("follow", follow, 1, 1, stream.get(), pointer.data());
         stream.synchronize();
       },
       "use after free: byte 0 of a block of 256 bytes"},
      {"memory is freed twice",
       [] {
         void* x = nullptr;
         HALFGRAD_CUDA(cudaMalloc(&x, 256));
         HALFGRAD_CUDA(cudaFree(x));
         HALFGRAD_CUDA(cudaFree(x));
       },
       "cudaFree(x) failed: invalid argument"},
      {"the host touches device memory",
       [] {
         const Stream stream;
         const DeviceArray<float> x(std::vector<float>(64, 1.0F), stream);
         expect(x.data()[3] == 1);
       },
       "the host touches device memory (byte 12 of a block of 256); copy it first [no kernel is running]"},
      {"a kernel is given a pointer to the host's memory",
       [] {
         const Stream stream;
         std::vector<float> host(64);
         launch("fill", fill, 1, 64, stream.get(), host.data(), 64, 1.0F);
       },
       "kernel fill is given a pointer that is not to device memory"},
      {"a copy is longer than its destination",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         const std::vector<float> host(128);
         HALFGRAD_CUDA(cudaMemcpyAsync(x.data(), host.data(), 512, cudaMemcpyHostToDevice, stream.get()));
       },
       "cudaMemcpyHostToDevice, stream.get()) failed: invalid argument"},
      {"a copy goes into the wrong direction",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         std::vector<float> host(64);
         HALFGRAD_CUDA(cudaMemcpyAsync(host.data(), x.data(), 256, cudaMemcpyHostToDevice, stream.get()));
       },
       "failed: invalid argument (cudaErrorInvalidValue)"},
      {"four numbers are read at once where they are not aligned",
       [] {
         const Stream stream;
         const DeviceArray<float> x(std::vector<float>(64, 1.0F), stream), y(1);
         launch("four", read_four_at_once, 1, 1, stream.get(), x.data(), y.data());
         stream.synchronize();
       },
       "misaligned access: 16 bytes at once"},

  };
}

}  // namespace cuda_emulation::testing
