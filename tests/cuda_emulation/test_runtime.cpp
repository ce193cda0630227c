// engine/cuda/runtime.h, and the backend's entry: errors say which call failed and what to do.

#include <doctest/doctest.h>

#include "device_array.h"
#include "engine/cuda/module.h"
#include "engine/error.h"

extern "C" const halfgrad::cuda::Module halfgrad_cuda_module;

using namespace cuda_emulation::testing;
using halfgrad::Error;
using namespace halfgrad::cuda;

TEST_CASE("a failed call is an Error that names it, once") {
  CHECK_THROWS_WITH_AS(HALFGRAD_CUDA(cudaSetDevice(7)),
                       "cuda: cudaSetDevice(7) failed: invalid device ordinal (cudaErrorInvalidDevice)", Error);
  CHECK_NOTHROW(check_launch("next"));
  CHECK_THROWS_WITH_AS(check_call(cudaErrorIllegalAddress, "cudaStreamSynchronize(stream)"),
                       doctest::Contains("a kernel that was launched earlier is at fault: run again with "
                                         "CUDA_LAUNCH_BLOCKING=1"),
                       Error);
  CHECK_NOTHROW(HALFGRAD_CUDA(cudaDeviceSynchronize()));
}

TEST_CASE("GPUs are counted, and when there are none the reason is given") {
  CHECK(find_gpus().count == 1);
  cuda_emulation::options().no_gpu = true;
  const Gpus none = find_gpus();
  std::string why_none;
  const int count = halfgrad_cuda_module.gpus(why_none);
  cuda_emulation::options().no_gpu = false;
  CHECK(none.count == 0);
  CHECK(none.why_none == "no CUDA-capable device is detected (cudaErrorNoDevice)");
  CHECK(count == 0);
  CHECK(why_none == none.why_none);
  CHECK_NOTHROW(check_launch("next"));
}

TEST_CASE("events move with the work that they mark, and streams wait for each other") {
  const Stream one;
  Stream two;
  Event first;
  first.record(one.get());
  CHECK(first.passed());  // an empty stream is done
  const DeviceArray<int> x(4), y(4);
  HALFGRAD_CUDA(cudaMemsetAsync(x.data(), 0, x.bytes(), one.get()));
  Event second;
  second.record(one.get());
  const Event moved = std::move(second);
  CHECK_FALSE(moved.passed());
  two.wait_for(one);
  HALFGRAD_CUDA(cudaMemcpyAsync(y.data(), x.data(), x.bytes(), cudaMemcpyDeviceToDevice, two.get()));
  CHECK(y.values(two) == std::vector<int>(4, 0));
  CHECK(moved.passed());
}

TEST_CASE("the grid fills the GPU and no more") {
  const Queue queue{nullptr, 132};
  CHECK(grid_for(1, queue).x == 1);
  CHECK(grid_for(kThreads, queue).x == 1);
  CHECK(grid_for(kThreads + 1, queue).x == 2);
  CHECK(grid_for(std::uint64_t{1} << 40, queue).x == 132 * 8);
}

TEST_CASE("the module hands out the same backend every time") {
  halfgrad::Backend& backend = halfgrad_cuda_module.backend(0);
  CHECK(&halfgrad_cuda_module.backend(0) == &backend);
  CHECK(backend.device() == halfgrad::Device::cuda(0));
  const int numbers[] = {1, 2, 3};
  int back[3] = {};
  void* memory = backend.allocator().allocate(sizeof numbers);
  backend.copy_from_host(memory, numbers, sizeof numbers);
  backend.copy_to_host(back, memory, sizeof numbers);
  backend.allocator().deallocate(memory, sizeof numbers);
  backend.synchronize();
  CHECK(back[2] == 3);
}
