#pragma once
// Kernels of softmax, log_softmax and cross entropy. In all tables a dtype is the index of its DType: f16, f32, f64.

#include <cstdint>

namespace halfgrad::cpu {

/// A bundle of lines: element i of line l is at data[l * line + i * step]. No data: absent.
struct Lines {
  void* data = nullptr;
  std::int64_t line = 0, step = 1;
};

/// Lines of n elements are n + kLinePadding apart in a buffer: lines a power of two apart would compete for
/// the same places in the cache.
inline constexpr std::int64_t kLinePadding = 16;

/// Cross entropy of lines of logits; see Backend::cross_entropy. "Numbers" are floats (doubles for f64).
struct CrossEntropyLines {
  Lines x, target;                   ///< target: one i64 for each line
  Lines loss, share, most, log_sum;  ///< one number for each line; share, most and log_sum may be absent
  Lines dx, dy;                      ///< of the gradient alone. dy: one element of x's dtype for each line
  const void* divisor = nullptr;     ///< one number, or null
  const void* weight = nullptr;      ///< numbers of the classes, or null
  double weight_sum = 0;             ///< over all classes, where there is smoothing
  double smoothing = 0;
  std::int64_t ignore_index = 0;
};

/// All of them take `count` lines of n > 0 elements and a buffer for 2 * count lines of numbers, kLinePadding included.
struct SoftmaxKernels {
  using Forward = void (*)(const Lines& y, const Lines& x, std::int64_t count, std::int64_t n, bool log, void* buffer);
  Forward forward[3];
  using Backward = void (*)(const Lines& dx, const Lines& dy, const Lines& y, std::int64_t count, std::int64_t n,
                            bool log, void* buffer);
  Backward backward[3];
  using CrossEntropy = void (*)(const CrossEntropyLines&, std::int64_t count, std::int64_t n, void* buffer);
  CrossEntropy cross_entropy[3], cross_entropy_backward[3];
};

}  // namespace halfgrad::cpu
