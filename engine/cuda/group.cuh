#pragma once
// Threads that make one result together. A group is the threads of a block that differ in threadIdx.x only: one thread, a
// warp (32), or several warps that are the whole block. The order in which values are combined depends on the size of the
// group alone, so results have the same bits on every GPU.

#include <cstdint>
#include <type_traits>

#include "engine/cuda/launch.cuh"

namespace halfgrad::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

/// The value of another lane. All lanes of the warp must call it.
template <class T>
__device__ inline T of_lane(const T& value, unsigned lane) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0, "a warp exchanges words of four bytes");
  constexpr unsigned kWords = sizeof(T) / 4;
  std::uint32_t words[kWords];
  __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
  for (unsigned w = 0; w < kWords; ++w) words[w] = __shfl_sync(kAllLanes, words[w], static_cast<int>(lane));
  T other;
  __builtin_memcpy(&other, words, sizeof(T));
  return other;
}

/// What combine(a, b) makes of the values of all lanes, as a balanced tree; every lane gets the same bits. All lanes of the
/// warp must call it.
template <class T, class Combine>
__device__ inline T reduce_warp(T value, Combine combine) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (unsigned bits = kWarp / 2; bits > 0; bits /= 2) {
    const T other = of_lane(value, lane ^ bits);
    value = lane & bits ? combine(other, value) : combine(value, other);  // the lower lane first, in both
  }
  return value;
}

/// The same over a group: blockDim.x is 1, 32, or a multiple of 32 up to 1024 with blockDim.y = 1. All threads of the group
/// must call it.
template <class T, class Combine>
__device__ inline T reduce_group(T value, Combine combine) {
  if (blockDim.x == 1) return value;
  value = reduce_warp(value, combine);
  if (blockDim.x == kWarp) return value;

  HALFGRAD_SHARED(T, of_warps, 32);
  __syncthreads();  // until everybody has read the values of the call before
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = combine(value, of_warps[warp]);
  return value;
}

/// The sum over a group.
template <class T>
__device__ inline T sum_of_group(T value) {
  return reduce_group(value, [](T a, T b) { return a + b; });
}

}  // namespace halfgrad::cuda
