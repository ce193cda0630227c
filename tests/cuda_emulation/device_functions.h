#pragma once
// What device code may use that a C++ compiler does not know. All of it is found by the names that CUDA gives it.

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "block.h"
#include "report.h"

#define threadIdx (::cuda_emulation::position.thread)
#define blockIdx (::cuda_emulation::position.block)
#define blockDim (::cuda_emulation::position.block_size)
#define gridDim (::cuda_emulation::position.grid_size)
inline constexpr int warpSize = 32;
#undef __launch_bounds__
#define __launch_bounds__(...)

// --- barriers --------------------------------------------------------------------------------------------------------

inline void __syncthreads(cuda_emulation::Line line = cuda_emulation::Line::current()) {
  cuda_emulation::block_barrier(line);
}
inline void __syncwarp(unsigned mask = ~0U, cuda_emulation::Line line = cuda_emulation::Line::current()) {
  cuda_emulation::warp_barrier(mask, line);
}
inline void __threadfence() {}  // threads take turns, so every write is seen at once

// --- values of other lanes -------------------------------------------------------------------------------------------

namespace cuda_emulation {
template <class T>
T value_of_lane(unsigned mask, T value, int source, Line line) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  T taken;
  exchange(mask, static_cast<unsigned>(source), &value, &taken, sizeof(T), line);
  return taken;
}
/// The lanes of this thread's section of `width` lanes: the first, and the first behind it.
inline int section_begin(int width) { return static_cast<int>(position.lane) & ~(width - 1); }
}  // namespace cuda_emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              cuda_emulation::Line line = cuda_emulation::Line::current()) {
  return cuda_emulation::value_of_lane(mask, value, cuda_emulation::section_begin(width) + (source & (width - 1)),
                                       line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  cuda_emulation::Line line = cuda_emulation::Line::current()) {
  const int self = static_cast<int>(cuda_emulation::position.lane), source = self ^ bits;
  return cuda_emulation::value_of_lane(mask, value,
                                       source < cuda_emulation::section_begin(width) + width ? source : self, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   cuda_emulation::Line line = cuda_emulation::Line::current()) {
  const int self = static_cast<int>(cuda_emulation::position.lane), source = self + static_cast<int>(by);
  return cuda_emulation::value_of_lane(mask, value,
                                       source < cuda_emulation::section_begin(width) + width ? source : self, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 cuda_emulation::Line line = cuda_emulation::Line::current()) {
  const int self = static_cast<int>(cuda_emulation::position.lane), source = self - static_cast<int>(by);
  return cuda_emulation::value_of_lane(mask, value, source >= cuda_emulation::section_begin(width) ? source : self,
                                       line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cuda_emulation::Line line = cuda_emulation::Line::current()) {
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1U)
      votes |= static_cast<unsigned>(cuda_emulation::value_of_lane(mask, predicate != 0, lane, line)) << lane;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, cuda_emulation::Line line = cuda_emulation::Line::current()) {
  return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_emulation::Line line = cuda_emulation::Line::current()) {
  return __ballot_sync(mask, predicate, line) == mask;
}

// --- bits ------------------------------------------------------------------------------------------------------------

/// The position of the lowest bit that is set, counted from 1; 0 when there is none.
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// --- atomics: threads take turns, so that every operation is one -----------------------------------------------------

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = std::max(before, value);
  return before;
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before | value;
  return before;
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = value;
  return before;
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
