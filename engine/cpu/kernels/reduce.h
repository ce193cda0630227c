#pragma once
// Kernels of reductions. In all tables a dtype is the index of its DType: f16, f32, f64, i32, i64, u8, bool.

#include <cstdint>

namespace halfgrad::cpu {

struct ReduceKernels {
  // The accumulator of an element type is float for f16 and f32, double for f64, else int64_t.

  /// out[w] = reduction of the `length` elements x[w * width_stride + i * length_stride]; the op's identity
  /// when there are none. Long reductions are cut into tiles: `length` is at most 1024 when length_stride is
  /// 1, else 32.
  using Tile = void (*)(void* out, const void* x, std::int64_t width, std::int64_t width_stride, std::int64_t length,
                        std::int64_t length_stride);
  /// a[w] = reduction of a[w] and b[w].
  using Merge = void (*)(void* a, const void* b, std::int64_t width);
  Tile tile[6][7];  ///< [ReduceOp][DType]
  Merge merge[6][7];

  /// The position of the first extremum among x[i * stride], i < n.
  using Position = std::int64_t (*)(const void* x, std::int64_t n, std::int64_t stride);
  Position position[2][7];  ///< [Extremum][DType]

  /// y[i * y_stride] = x[0] + ... + x[i * x_stride]; y is i64 for integers, else x's dtype.
  using Cumsum = void (*)(void* y, const void* x, std::int64_t n, std::int64_t y_stride, std::int64_t x_stride);
  Cumsum cumsum[7];
};

}  // namespace halfgrad::cpu
