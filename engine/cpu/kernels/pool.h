#pragma once
// Pooling kernels: windows over the planes of one image.

#include <cstdint>

namespace halfgrad::cpu {

/// What a window covers in one direction: the positions begin, begin + step, ... below end. `size` is how
/// many an average divides by: their number, or more where padding counts.
struct PoolSpan {
  std::int64_t begin, end, step, size;
};

/// Channels, rows and columns of one image, with strides in elements.
struct PoolImage {
  void* data;
  std::int64_t channel, row, column;
};

/// One image, or as many of its rows or channels as one call shall do. x is the large side and y the pooled
/// side, also when they are gradients.
struct PoolJob {
  std::int64_t channels, height, width, out_height, out_width;
  const PoolSpan* rows;     ///< one per row of y; not for max_backward, nor are the columns
  const PoolSpan* columns;  ///< one per column of y
  PoolImage x, y;
  PoolImage index;  ///< of max: i32, position row * width + column in x; data may be nullptr in the forward
  void* sums;       ///< of the backwards: room for channels * height * width floats (doubles for f64)
};

struct PoolFunctions {
  void (*max)(const PoolJob&);
  void (*max_backward)(const PoolJob&);
  void (*average)(const PoolJob&);
  void (*average_backward)(const PoolJob&);
};

struct PoolKernels {
  PoolFunctions f16, f32, f64;
};

}  // namespace halfgrad::cpu
