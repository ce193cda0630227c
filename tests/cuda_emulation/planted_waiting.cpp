#include "engine/cuda/allocator.h"
#include "planted_faults.h"

namespace cuda_emulation::testing {

std::vector<Fault> faults_of_waiting() {
  return {
      {"the host reads a copy that it did not wait for",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         std::vector<float> host(64, 0.0F);
         launch("fill", fill, 1, 64, stream.get(), x.data(), 64, 3.0F);
         HALFGRAD_CUDA(cudaMemcpyAsync(host.data(), x.data(), x.bytes(), cudaMemcpyDeviceToHost, stream.get()));
         expect(host[0] == 3);
       },
       kWrongResult},
      {"the source of a copy changes before the copy is done",
       [] {
         const Stream stream;
         const DeviceArray<float> x(1);
         float host = 1;
         HALFGRAD_CUDA(cudaMemcpyAsync(x.data(), &host, 4, cudaMemcpyHostToDevice, stream.get()));
         host = 2;
         expect(x.values(stream)[0] == 1);
       },
       kWrongResult},
      {"a stream does not wait for the other that makes its input",
       [] {
         const Stream one, two;
         const DeviceArray<float> x(64), y(std::vector<float>(64, 1.0F), two);
         launch("fill", fill, 1, 64, one.get(), x.data(), 64, 1.0F);
         launch("add", add, 1, 64, two.get(), y.data(), x.data(), 64);
         expect(y.values(two)[0] == 2);
       },
       kWrongResult},
      {"an event is recorded before the work that it stands for",
       [] {
         const Stream one, two;
         const DeviceArray<float> x(64), y(std::vector<float>(64, 1.0F), two);
         halfgrad::cuda::Event event;
         event.record(one.get());
         launch("fill", fill, 1, 64, one.get(), x.data(), 64, 1.0F);
         HALFGRAD_CUDA(cudaStreamWaitEvent(two.get(), event.get(), 0));
         launch("add", add, 1, 64, two.get(), y.data(), x.data(), 64);
         expect(y.values(two)[0] == 2);
       },
       kWrongResult},
      {"a block is used on a second stream, and the allocator is not told",
       [] {
         Stream one, two;
         halfgrad::cuda::CachingAllocator allocator(0, one.get());
         auto* x = static_cast<float*>(allocator.allocate(256));
         const DeviceArray<float> sum(std::vector<float>(64, 0.0F), two);
         launch("fill", fill, 1, 64, one.get(), x, 64, 1.0F);
         two.wait_for(one);
         launch("add", add, 1, 64, two.get(), sum.data(), x, 64);
         allocator.deallocate(x, 256);
         x = static_cast<float*>(allocator.allocate(256));
         launch("fill", fill, 1, 64, one.get(), x, 64, 7.0F);
         one.synchronize();
         expect(sum.values(two)[0] == 1);
       },
       kWrongResult},
      {"the default stream is used",
       [] {
         const DeviceArray<float> x(64);
         launch("fill", fill, 1, 64, nullptr, x.data(), 64, 1.0F);
       },
       "into the default stream"},
      {"a destroyed stream is used",
       [] {
         const DeviceArray<float> x(64);
         cudaStream_t stream = nullptr;
         HALFGRAD_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
         HALFGRAD_CUDA(cudaStreamDestroy(stream));
         launch("fill", fill, 1, 64, stream, x.data(), 64, 1.0F);
       },
       "a stream is used that was destroyed"},

  };
}

}  // namespace cuda_emulation::testing
