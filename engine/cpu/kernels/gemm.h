#pragma once
// Matrix products of f32 and f16 matrices, both accumulated in f32.

#include <cstddef>
#include <cstdint>

namespace halfgrad::cpu {

/// c = a x b + bias for one pair of matrices: a is m x k, b is k x n, c is m x n. Element (i, j) of a lies at
/// a + i*a_row + j*a_col, and so on; that of the bias (none if it is null) at bias + i*bias_row + j*bias_col.
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
};

// What is worked on at a time, so that it stays in the L2 cache: a block of c of at most kGemmBlockRows x
// kGemmBlockColumns, and for that kGemmBlockDepth rows of b and columns of a.
inline constexpr std::int64_t kGemmBlockRows = 336;
inline constexpr std::int64_t kGemmBlockColumns = 256;
inline constexpr std::int64_t kGemmBlockDepth = 512;

/// How many floats of scratch memory GemmKernels::block_* need.
inline constexpr std::int64_t kGemmScratch =
    (kGemmBlockRows + 32) * (kGemmBlockDepth + 32) + kGemmBlockDepth * kGemmBlockColumns +
    kGemmBlockRows * kGemmBlockColumns;

/// The largest m of GemmKernels::dots_*.
inline constexpr std::int64_t kGemmDotRows = 4;

struct GemmKernels {
  /// A product with m <= kGemmBlockRows, n <= kGemmBlockColumns and any k, 0 too.
  void (*block_f32)(const GemmProblem<float>&, float* scratch);
  void (*block_f16)(const GemmProblem<std::uint16_t>&, float* scratch);
  /// A product with m <= kGemmDotRows, any n and k, a_col == 1 and b_row == 1: as dot products, without packing.
  void (*dots_f32)(const GemmProblem<float>&);
  void (*dots_f16)(const GemmProblem<std::uint16_t>&);
};

}  // namespace halfgrad::cpu
