#pragma once
// The micro-kernel: a small tile of C = A x B held in registers while k runs. Matrix products and
// convolutions both consist of nothing but these.

#include "engine/cpu/simd.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

// The largest tile. Its sums, two vectors wide, take all registers but the few for B's row and A's broadcast
// value: 28 + 4 of 32 with AVX512, 12 + 4 of 16 otherwise. Each loaded vector of B is used once per row and
// each loaded number of A twice, so the loads keep up with two multiply-adds a cycle.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileVectors = 2;
inline constexpr int kTileColumns = kTileVectors * kLanes;

/// One call of a micro-kernel: c[i][j] = sum over k of a(i, k) * b[k][j], all in f32.
///
/// A is read where it lies, with any strides. k runs over segments of equal depth: segment s of A begins at a
/// + segments[s], while B just continues. A matrix product has one segment. A convolution has one per row of
/// the filter, or per tap, because that is how far the inputs of an output pixel lie contiguously.
struct Tile {
  const float* a;
  std::ptrdiff_t a_row, a_depth;  // strides
  const float* b;
  std::ptrdiff_t b_depth;  // stride from k to k + 1; a row is kLanes or kTileColumns contiguous numbers
  float* c;
  std::ptrdiff_t c_row;  // stride; a row is as wide as one of B
  std::ptrdiff_t depth;  // of each segment
  const std::ptrdiff_t* segments;
  std::ptrdiff_t segment_count;
  bool accumulate;  // add to c instead of overwriting it
};

inline constexpr std::ptrdiff_t kOneSegment[1] = {0};

using MicroKernel = void (*)(const Tile&);

/// One micro-kernel for every size of tile: for_size[v - 1][r - 1] computes r rows and v vectors. All form
/// each sum in the same order, so how a matrix is cut into tiles does not change its bits.
struct MicroKernels {
  MicroKernel for_size[kTileVectors][kTileRows];
};
extern const MicroKernels micro_kernels;

/// Runs the micro-kernel for `rows` x `columns`; columns are rounded up to whole vectors.
HALFGRAD_INLINE void run_tile(std::int64_t rows, std::int64_t columns, const Tile& tile) {
  micro_kernels.for_size[columns > kLanes][rows - 1](tile);
}

/// Cuts n rows into as few panels of at most kTileRows as possible, all nearly equally high: 16 rows become 8
/// + 8, not 14 + 2, because a low tile does not fill the multiply-add units.
struct Panels {
  std::int64_t rows, count;
  explicit Panels(std::int64_t n) : rows(n), count((n + kTileRows - 1) / kTileRows) {}
  std::int64_t begin(std::int64_t panel) const { return rows * panel / count; }
  std::int64_t height(std::int64_t panel) const { return begin(panel + 1) - begin(panel); }
};

}  // namespace halfgrad::cpu::HALFGRAD_ISA
