// The emulation itself: right programs give right results, in either order of threads.

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "device_array.h"

using namespace cuda_emulation::testing;

namespace {

// Runs a test with the threads in either order.
template <class F>
void in_both_orders(F&& f) {
  for (bool reverse : {false, true}) {
    CAPTURE(reverse);
    cuda_emulation::options().reverse = reverse;
    f();
  }
  cuda_emulation::options().reverse = false;
}

std::vector<int> count_up(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

__global__ void write_positions(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

// Reverses each block's part.
__global__ void reverse_blocks(const int* from, int* to) {
  HALFGRAD_SHARED(int, part, 64);
  part[threadIdx.x] = from[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = part[63 - threadIdx.x];
}

// The sum of a block, by warps: shuffles, then shared memory, then shuffles again. Barriers in a loop.
__global__ void sum_rows(const int* x, int* sums, int rows, int columns) {
  HALFGRAD_SHARED(int, of_warps, 32);
  for (int row = 0; row < rows; ++row) {
    int sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x))
      sum += x[row * columns + c];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
      sum = threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : 0;
      for (unsigned step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xFFFFFFFF, sum, step);
      if (threadIdx.x == 0) sums[row] = sum;
    }
  }
}

__global__ void warp_functions(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(0xFFFFFFFF, lane * lane, 5);
  out[32 + lane] = __shfl_up_sync(0xFFFFFFFF, lane, 3);
  out[64 + lane] = __shfl_sync(0xFFFFFFFF, lane, 2, 8);  // in sections of eight
  out[96 + lane] = static_cast<int>(__ballot_sync(0xFFFFFFFF, lane % 3 == 0));
  out[128 + lane] = __any_sync(0xFFFFFFFF, lane == 7) + 2 * __all_sync(0xFFFFFFFF, lane < 31);
  if (lane < 16) out[160 + lane] = __shfl_xor_sync(0xFFFF, lane, 1);  // half of the warp
}

__global__ void early_exit(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();  // of those that are left
  out[threadIdx.x] = 1;
}

__global__ void count(int* counter, int* largest) {
  atomicAdd(counter, 1);
  atomicMax(largest, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

__global__ void add_one(int* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) ++x[i];
}

__global__ void exp_of_half(const __half* x, float* y) { y[threadIdx.x] = std::exp(__half2float(x[threadIdx.x])); }

}  // namespace

TEST_CASE("threads and blocks know where they are, in three dimensions") {
  in_both_orders([] {
    const Stream stream;
    const DeviceArray<unsigned> out(2 * 3 * 2 * 4 * 2 * 3);
    launch("positions", write_positions, dim3(2, 3, 2), dim3(4, 2, 3), stream.get(), out.data());
    const std::vector<unsigned> values = out.values(stream);
    for (unsigned i = 0; i < values.size(); ++i) CHECK(values[i] == 1000 * (i / 24) + i % 24);
  });
}

TEST_CASE("shared memory and barriers") {
  in_both_orders([] {
    const Stream stream;
    const DeviceArray<int> from(count_up(192), stream), to(192);
    launch("reverse", reverse_blocks, 3, 64, stream.get(), from.data(), to.data());
    const std::vector<int> values = to.values(stream);
    for (int i = 0; i < 192; ++i) CHECK(values[static_cast<std::size_t>(i)] == i / 64 * 64 + 63 - i % 64);
  });
}

TEST_CASE("sums by shuffles, shared memory and barriers in a loop") {
  in_both_orders([] {
    const Stream stream;
    const DeviceArray<int> x(count_up(7 * 301), stream), sums(7);
    for (unsigned threads : {32U, 96U, 256U, 1024U}) {
      launch("sum", sum_rows, 1, threads, stream.get(), x.data(), sums.data(), 7, 301);
      const std::vector<int> values = sums.values(stream);
      for (int row = 0; row < 7; ++row) CHECK(values[static_cast<std::size_t>(row)] == 301 * (row * 301 + 150));
    }
  });
}

TEST_CASE("the functions of a warp") {
  in_both_orders([] {
    const Stream stream;
    const DeviceArray<int> out(176);
    launch("warp", warp_functions, 1, 32, stream.get(), out.data());
    const std::vector<int> values = out.values(stream);
    unsigned thirds = 0;
    for (unsigned lane = 0; lane < 32; lane += 3) thirds |= 1U << lane;
    for (int lane = 0; lane < 32; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      CHECK(values[at] == 25);
      CHECK(values[32 + at] == (lane < 3 ? lane : lane - 3));
      CHECK(values[64 + at] == lane / 8 * 8 + 2);
      CHECK(values[96 + at] == static_cast<int>(thirds));
      CHECK(values[128 + at] == 1);
      if (lane < 16) CHECK(values[160 + at] == (lane ^ 1));
    }
  });
}

TEST_CASE("threads that have ended do not hold up a barrier, and atomics count") {
  in_both_orders([] {
    const Stream stream;
    const DeviceArray<int> out(40), counter({0}, stream), largest({0}, stream);
    launch("exit", early_exit, 1, 64, stream.get(), out.data());
    CHECK(out.values(stream) == std::vector<int>(40, 1));
    launch("count", count, 5, 96, stream.get(), counter.data(), largest.data());
    CHECK(counter.values(stream)[0] == 480);
    CHECK(largest.values(stream)[0] == 479);
  });
}

TEST_CASE("streams run in order, and events order them among each other") {
  Stream one, two;
  const DeviceArray<int> x({5}, one);
  launch("add", add_one, 1, 32, one.get(), x.data(), 1);
  launch("add", add_one, 1, 32, one.get(), x.data(), 1);
  halfgrad::cuda::Event event;
  CHECK(event.passed());  // nothing was recorded
  event.record(one.get());
  CHECK_FALSE(event.passed());
  two.wait_for(one);
  CHECK(x.values(two)[0] == 7);
  CHECK(event.passed());
  launch("add", add_one, 1, 32, one.get(), x.data(), 1);
  CHECK(cudaStreamQuery(one.get()) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);  // being busy is no error
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaStreamQuery(one.get()) == cudaSuccess);
  CHECK(x.values(one)[0] == 8);
}

TEST_CASE("device code with halves and functions of the C library") {
  const Stream stream;
  const DeviceArray<__half> x({__float2half(0.5F), __float2half(-2.0F)}, stream);
  const DeviceArray<float> y(2);
  launch("exp", exp_of_half, 1, 2, stream.get(), x.data(), y.data());
  CHECK(y.values(stream) == std::vector<float>{std::exp(0.5F), std::exp(-2.0F)});
}

TEST_CASE("memory that was never written is NaN, and all of it can be written") {
  const Stream stream;
  for (std::size_t n : {1, 3, 64, 1000, 4096}) {
    const DeviceArray<float> x(n);
    CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % 256 == 0);
    for (float v : x.values(stream)) CHECK(std::isnan(v));
    HALFGRAD_CUDA(cudaMemsetAsync(x.data(), 0, x.bytes(), stream.get()));
    CHECK(x.values(stream) == std::vector<float>(n, 0.0F));
  }
}

TEST_CASE("two threads of the host may work with streams of their own") {
  std::vector<std::thread> threads;
  std::vector<int> results(2);
  for (std::size_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      const Stream stream;
      const DeviceArray<int> x({0}, stream);
      for (int i = 0; i < 100; ++i) launch("add", add_one, 1, 32, stream.get(), x.data(), 1);
      results[t] = x.values(stream)[0];
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(results == std::vector<int>{100, 100});
}
