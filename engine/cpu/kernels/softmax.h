#pragma once
// Kernels of softmax and log_softmax. In all tables a dtype is the index of its DType: f16, f32, f64.

#include <cstdint>

namespace halfgrad::cpu {

/// A bundle of lines: element i of line l is at l * line + i * step.
struct LineStrides {
  std::int64_t line = 0, step = 1;
};

/// Lines of n elements are n + kLinePadding apart in a buffer: lines a power of two apart would compete for
/// the same places in the cache.
inline constexpr std::int64_t kLinePadding = 16;

struct SoftmaxKernels {
  /// `buffer` has room for lines + 1 lines of floats (doubles for f64).
  using Forward = void (*)(void* y, const void* x, std::int64_t lines, std::int64_t n, LineStrides y_strides,
                           LineStrides x_strides, bool log, void* buffer);
  Forward forward[3];
  /// `buffer` has room for 2 * lines lines of floats (doubles for f64).
  using Backward = void (*)(void* dx, const void* dy, const void* y, std::int64_t lines, std::int64_t n,
                            LineStrides dx_strides, LineStrides dy_strides, LineStrides y_strides, bool log,
                            void* buffer);
  Backward backward[3];
};

}  // namespace halfgrad::cpu
