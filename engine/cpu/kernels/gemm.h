#pragma once
// Matrix products of f32 and f16 matrices, both accumulated in f32.

#include <cstddef>
#include <cstdint>

namespace halfgrad::cpu {

/// c = a x b + bias for one pair of matrices: a is m x k, b is k x n, c is m x n. Element (i, j) of a lies at
/// a + i*a_row + j*a_col, and so on; that of the bias (none if it is null) at bias + i*bias_row + j*bias_col.
/// Results less than `lowest` become that.
/// T is float, or std::uint16_t for the bits of halves.
template <class T>
struct GemmProblem {
  std::int64_t m, n, k;
  const T* a;
  std::ptrdiff_t a_row, a_col;
  const T* b;
  std::ptrdiff_t b_row, b_col;
  T* c;
  std::ptrdiff_t c_row, c_col;
  const T* bias;
  std::ptrdiff_t bias_row, bias_col;
  float lowest;
};

// What is worked on at a time. A task is a block of c of at most kGemmBlockRows x kGemmBlockColumns. Of its
// k, kGemmBlockDepth are taken at a time; the packed part of b for that, and of a as many as kGemmPassRows
// rows, are to stay in the L2 cache.
inline constexpr std::int64_t kGemmBlockRows = 512;
inline constexpr std::int64_t kGemmBlockColumns = 512;
inline constexpr std::int64_t kGemmBlockDepth = 512;
inline constexpr std::int64_t kGemmPassRows = 336;

/// How many floats of scratch memory GemmKernels::block_* need: for b, a and unfinished sums.
inline constexpr std::int64_t kGemmScratch = kGemmBlockDepth * kGemmBlockColumns +
                                             (kGemmPassRows + 32) * (kGemmBlockDepth + 32) +
                                             kGemmBlockRows * kGemmBlockColumns;

/// The largest m of GemmKernels::dots_*.
inline constexpr std::int64_t kGemmDotRows = 4;

struct GemmKernels {
  /// A product with m <= kGemmBlockRows, n <= kGemmBlockColumns and any k, 0 too.
  void (*block_f32)(const GemmProblem<float>&, float* scratch);
  void (*block_f16)(const GemmProblem<std::uint16_t>&, float* scratch);
  /// A product with m <= kGemmDotRows, any n and k, a_col == 1 and b_row == 1: as dot products, without
  /// packing.
  void (*dots_f32)(const GemmProblem<float>&);
  void (*dots_f16)(const GemmProblem<std::uint16_t>&);
};

}  // namespace halfgrad::cpu
