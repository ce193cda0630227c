#pragma once
// Walking along lines (lines.h): how the threads of a group find the elements of their line. A thread takes eight elements
// at a time, or two of f64 and integers. In dense memory that can be moved by 16 bytes they are neighbours; else the threads
// of the group take turns, so that neighbouring threads read what lies side by side. Blocks have a group along x, and several
// groups along y.

#include "engine/cuda/elementwise.h"
#include "engine/cuda/group.cuh"
#include "engine/cuda/lines.h"
#include "engine/cuda/numbers.cuh"

namespace halfgrad::cuda {

/// The block of groups, and a grid for one group per task, or as many as run at a time.
inline dim3 block_of(unsigned group) { return dim3(group, kThreads / group); }
inline dim3 grid_of(std::uint64_t tasks, unsigned group, const Queue& queue) { return grid_for(tasks * group, queue); }

/// The first task of this thread's group, and the distance to its next.
__device__ inline std::uint64_t first_task() { return std::uint64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
__device__ inline std::uint64_t task_step() { return std::uint64_t{gridDim.x} * blockDim.y; }

/// The memory from element `offset` on.
__device__ inline Array from(const Array& array, std::int64_t offset) {
  return {static_cast<char*>(array.data) + offset * static_cast<std::int64_t>(size_of(array.dtype)), array.dtype};
}

/// load() and store() of the few dtypes that are computed in C: f16 and f32 in float, f64 in double, the rest in int64.
template <class C>
__device__ inline C load_computed(const Array& x, std::uint32_t i) {
  if constexpr (std::is_same_v<C, float>) {
    return x.dtype == f16 ? to_float(static_cast<const half*>(x.data)[i]) : static_cast<const float*>(x.data)[i];
  } else if constexpr (std::is_same_v<C, double>) {
    return static_cast<const double*>(x.data)[i];
  } else {
    switch (x.dtype) {
      case i64:
        return static_cast<const std::int64_t*>(x.data)[i];
      case i32:
        return static_cast<const std::int32_t*>(x.data)[i];
      default:  // u8, and bool, which is 0 or 1
        return static_cast<const std::uint8_t*>(x.data)[i];
    }
  }
}
template <class C>
__device__ inline void store_computed(const Array& y, std::uint32_t i, C value) {
  if constexpr (std::is_same_v<C, double>)
    static_cast<double*>(y.data)[i] = value;
  else if (y.dtype == f16)
    static_cast<half*>(y.data)[i] = to_half(value);
  else
    static_cast<float*>(y.data)[i] = value;
}

/// So many elements a thread handles in one step. Wide numbers need more registers, and are not what training is made of.
template <class C>
inline constexpr std::uint32_t kAtOnce = std::is_same_v<C, float> ? kEight : 2;
template <class C>
using Some = C[kAtOnce<C>];

/// The elements of a line that a thread handles in one step.
template <class C>
struct Turn {
  std::uint32_t first, end;  ///< of the elements that the group handles before the next step, and of the line
  bool by_eight;

  __device__ std::uint32_t element(std::uint32_t k) const {
    return by_eight ? first + kAtOnce<C> * threadIdx.x + k : first + k * blockDim.x + threadIdx.x;
  }
  __device__ bool has(std::uint32_t k) const { return element(k) < end; }
  /// All eight are there, and they are number eighth() of all eights.
  __device__ bool moves_by_eight() const { return by_eight && has(kEight - 1); }
  __device__ std::uint32_t eighth() const { return first / kEight + threadIdx.x; }
};

/// Calls f(turn) until the group has handled the elements [begin, end) of its line. `begin` is a multiple of eight.
template <class C, class F>
__device__ inline void for_turns(const Lines& lines, std::uint32_t begin, std::uint32_t end, F&& f) {
  for (std::uint64_t first = begin; first < end; first += kAtOnce<C> * blockDim.x)
    f(Turn<C>{static_cast<std::uint32_t>(first), end, lines.by_eight});
}

/// One operand along one line.
template <class C>
struct Line {
  Array array;
  const Space& elements;
  int operand;

  __device__ Line(const Lines& lines, int k, std::uint32_t line)
      : array(from(lines.at[k], lines.lines.position(line, k))), elements(lines.elements), operand(k) {}

  /// The elements of a turn; `none` for those behind the end.
  __device__ void load(const Turn<C>& turn, C none, Some<C>& x) const {
    if constexpr (std::is_same_v<C, float>)
      if (turn.moves_by_eight()) return load_eight(array.data, array.dtype, turn.eighth(), x);
#pragma unroll
    for (std::uint32_t k = 0; k < kAtOnce<C>; ++k)
      x[k] = turn.has(k) ? load_computed<C>(array, elements.position(turn.element(k), operand)) : none;
  }
  __device__ void store(const Turn<C>& turn, const Some<C>& y) const {
    if constexpr (std::is_same_v<C, float>)
      if (turn.moves_by_eight()) return store_eight(array.data, array.dtype, turn.eighth(), y);
#pragma unroll
    for (std::uint32_t k = 0; k < kAtOnce<C>; ++k)
      if (turn.has(k)) store_computed<C>(array, elements.position(turn.element(k), operand), y[k]);
  }
};

/// The elements of a vector that belong to those of a turn; `absent` when there is no vector.
template <class C>
__device__ inline void load_vector(const Vector& vector, const Turn<C>& turn, C absent, Some<C>& v) {
  if constexpr (std::is_same_v<C, float>)
    if (vector.by_eight && turn.moves_by_eight())
      return load_eight(vector.array.data, vector.array.dtype, turn.eighth(), v);
#pragma unroll
  for (std::uint32_t k = 0; k < kAtOnce<C>; ++k)
    v[k] = vector.array.data && turn.has(k)
               ? load<C>(from(vector.array, turn.element(k) * vector.stride).data, vector.array.dtype, 0)
               : absent;
}

/// Element i of a vector.
template <class C>
__device__ inline C number_at(const Vector& vector, std::int64_t i) {
  return load_computed<C>(from(vector.array, i * vector.stride), 0);
}

/// The numbers of a turn as one: a tree, so that a sum's rounding errors grow with the number of turns.
template <class C, std::uint32_t n, class Combine>
__device__ inline C combine_some(const C (&x)[n], Combine combine) {
  C rest[n];
#pragma unroll
  for (std::uint32_t k = 0; k < n; ++k) rest[k] = x[k];
#pragma unroll
  for (std::uint32_t half = n / 2; half > 0; half /= 2)
#pragma unroll
    for (std::uint32_t k = 0; k < half; ++k) rest[k] = combine(rest[k], rest[k + half]);
  return rest[0];
}
template <class C, std::uint32_t n>
__device__ inline C sum_of_some(const C (&x)[n]) {
  return combine_some(x, [](C a, C b) { return a + b; });
}

}  // namespace halfgrad::cuda
