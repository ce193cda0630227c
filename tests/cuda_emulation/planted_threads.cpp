#include <cmath>

#include "planted_faults.h"

namespace cuda_emulation::testing {

namespace {

__global__ void write_behind_shared(float* y) {
  HALFGRAD_SHARED(float, shared, 64);
  shared[threadIdx.x + 1] = 1;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x];
}
__global__ void share_too_much(float* y) {
  HALFGRAD_SHARED(float, shared, 20000);
  y[0] = shared[0];
}
__global__ void divergent_barrier(int* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
    y[0] = 1;
  } else {
    __syncthreads();
    y[1] = 2;
  }
}
__global__ void barrier_for_some(int* y) {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncwarp();
  y[threadIdx.x] = 1;
}
__global__ void reverse_without_barrier(const int* x, int* y) {
  HALFGRAD_SHARED(int, shared, 64);
  shared[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = shared[63 - threadIdx.x];
}
__global__ void read_unwritten_shared(float* y) {
  HALFGRAD_SHARED(float, shared, 64);
  if (threadIdx.x < 32) shared[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x];
}
__global__ void two_rounds_without_barrier(int* y) {
  HALFGRAD_SHARED(int, shared, 1);
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) shared[0] = round;
    __syncthreads();
    y[64 * round + threadIdx.x] = shared[0];
  }
}
__global__ void swap_without_syncwarp(const int* x, int* y) {
  HALFGRAD_SHARED(int, shared, 32);
  shared[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = shared[threadIdx.x ^ 1U];
}
// Lanes 0 to 7 have one element more than the others.
__global__ void shuffle_in_uneven_loop(const float* x, float* y, int n) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) sum += __shfl_xor_sync(0xFFFFFFFF, x[i], 16);
  __syncthreads();
  y[threadIdx.x] = sum;
}
__global__ void add_in_any_order(const float* x, float* sum) { atomicAdd(sum, x[threadIdx.x]); }
__global__ void shuffle_with_ended_lanes(float* y, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  float sum = 1;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
  y[threadIdx.x] = sum;
}
__global__ void shuffle_outside_of_mask(float* y) { y[threadIdx.x] = __shfl_xor_sync(0xFFFF, 1.0F, 1); }
__global__ void shuffle_from_outside(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xFFFF, 1.0F, 20);
}
// Block i reads what block i - 1 writes.
__global__ void pass_on(int* x) { x[blockIdx.x + 1] = x[blockIdx.x] + 1; }

}  // namespace

std::vector<Fault> faults_of_threads() {
  return {
      // Launches
      {"a grid is empty",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("fill", fill, 0, 64, stream.get(), x.data(), 0, 1.0F);
       },
       "the launch of kernel fill failed: invalid configuration argument (cudaErrorInvalidConfiguration)"},
      {"a block has too many threads",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("fill", fill, 1, 1025, stream.get(), x.data(), 0, 1.0F);
       },
       "the launch of kernel fill failed"},
      {"a block shares too much memory",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("share", share_too_much, 1, 1, stream.get(), x.data());
         stream.synchronize();
       },
       "the block shares 80000 bytes, expected at most 49152"},

      // Threads among each other
      {"shared memory is written behind its end",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("shared", write_behind_shared, 1, 64, stream.get(), x.data());
         stream.synchronize();
       },
       "out of bounds: behind the shared array of 256 bytes"},
      {"no barrier lies between writing and reading shared memory",
       [] {
         const Stream stream;
         std::vector<int> host(64);
         for (int i = 0; i < 64; ++i) host[static_cast<std::size_t>(i)] = i;
         const DeviceArray<int> x(host, stream), y(64);
         launch("reverse", reverse_without_barrier, 1, 64, stream.get(), x.data(), y.data());
         const std::vector<int> values = y.values(stream);
         bool right = true;
         for (int i = 0; i < 64; ++i) right = right && values[static_cast<std::size_t>(i)] == 63 - i;
         expect(right);
       },
       kWrongResult},
      {"shared memory is read that was never written",
       [] {
         const Stream stream;
         const DeviceArray<float> x(64);
         launch("unwritten", read_unwritten_shared, 1, 64, stream.get(), x.data());
         expect(!std::isnan(x.values(stream)[63]));
       },
       kWrongResult},
      {"shared memory is written again before everybody has read it",
       [] {
         const Stream stream;
         const DeviceArray<int> x(128);
         launch("rounds", two_rounds_without_barrier, 1, 64, stream.get(), x.data());
         const std::vector<int> values = x.values(stream);
         bool right = true;
         for (std::size_t i = 0; i < 128; ++i) right = right && values[i] == static_cast<int>(i / 64);
         expect(right);
       },
       kWrongResult},
      {"lanes of a warp exchange numbers in shared memory without waiting for each other",
       [] {
         const Stream stream;
         std::vector<int> host(32);
         for (int i = 0; i < 32; ++i) host[static_cast<std::size_t>(i)] = i;
         const DeviceArray<int> x(host, stream), y(32);
         launch("swap", swap_without_syncwarp, 1, 32, stream.get(), x.data(), y.data());
         const std::vector<int> values = y.values(stream);
         bool right = true;
         for (int i = 0; i < 32; ++i) right = right && values[static_cast<std::size_t>(i)] == (i ^ 1);
         expect(right);
       },
       kWrongResult},
      {"a sum of floats depends on who comes first",
       [] {
         const Stream stream;
         std::vector<float> host(64, 1.0F);
         host[0] = 1e8F;  // before it nothing is lost, behind it everything
         const DeviceArray<float> x(host, stream), sum({0.0F}, stream);
         launch("add", add_in_any_order, 1, 64, stream.get(), x.data(), sum.data());
         expect(sum.values(stream)[0] == 1e8F);
       },
       kWrongResult},
      {"threads wait at different barriers",
       [] {
         const Stream stream;
         const DeviceArray<int> x(2);
         launch("divergent", divergent_barrier, 1, 64, stream.get(), x.data());
         stream.synchronize();
       },
       "divergent barrier: some threads of the block wait in line "},
      {"a barrier is not for all threads",
       [] {
         const Stream stream;
         const DeviceArray<int> x(32);
         launch("some", barrier_for_some, 1, 32, stream.get(), x.data());
         stream.synchronize();
       },
       "deadlock: not all threads come to the barrier in "},
      {"a shuffle names lanes that have ended",
       [] {
         const Stream stream;
         const DeviceArray<float> x(32);
         launch("ended", shuffle_with_ended_lanes, 1, 32, stream.get(), x.data(), 20);
         stream.synchronize();
       },
       "a warp waits for lane 20, which has ended or does not exist"},
      {"a shuffle is in a loop that some lanes leave earlier",
       [] {
         const Stream stream;
         const DeviceArray<float> x(std::vector<float>(40, 1.0F), stream), y(32);
         launch("uneven", shuffle_in_uneven_loop, 1, 32, stream.get(), x.data(), y.data(), 40);
         stream.synchronize();
       },
       "deadlock: not all threads come to the barrier in "},
      {"a shuffle does not name the lane that calls it",
       [] {
         const Stream stream;
         const DeviceArray<float> x(32);
         launch("outside", shuffle_outside_of_mask, 1, 32, stream.get(), x.data());
         stream.synchronize();
       },
       "a lane calls a warp function whose mask does not name it"},
      {"a shuffle reads from a lane that its mask does not name",
       [] {
         const Stream stream;
         const DeviceArray<float> x(32);
         launch("from outside", shuffle_from_outside, 1, 32, stream.get(), x.data());
         expect(!std::isnan(x.values(stream)[0]));
       },
       kWrongResult},
      {"a block relies on the one before it",
       [] {
         const Stream stream;
         const DeviceArray<int> x(std::vector<int>(5, 0), stream);
         launch("pass on", pass_on, 4, 1, stream.get(), x.data());
         expect(x.values(stream)[4] == 4);
       },
       kWrongResult},
  };
}

}  // namespace cuda_emulation::testing
