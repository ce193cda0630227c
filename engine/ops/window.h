#pragma once
// What convolutions and pools share: two numbers, for height and width, how often a window fits, and what size as many
// windows cover.

#include <algorithm>
#include <cstdint>

#include "engine/error.h"

namespace halfgrad {

/// A number for height and one for width; a single number stands for both: `.stride = 2`, `.padding = {1,
/// 0}`.
struct Pair {
  std::int64_t h = 0;
  std::int64_t w = 0;

  Pair() = default;
  Pair(std::int64_t both) : h(both), w(both) {}
  Pair(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  std::int64_t operator[](int axis) const { return axis == 0 ? h : w; }
};

namespace detail {

inline constexpr std::int64_t kLargestWindow = INT32_MAX;  // so that no product of two numbers overflows

/// Throws Error naming `op` when a number makes no sense.
inline void check_window(const char* op, std::int64_t size, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
  check(kernel >= 1 && stride >= 1 && dilation >= 1 && padding >= 0 &&
            std::max({size, kernel, stride, dilation, padding}) <= kLargestWindow,
        "{}: kernel {}, stride {} and dilation {} must be at least 1, padding {} at least 0, and each at "
        "most {}",
        op, kernel, stride, dilation, padding, kLargestWindow);
  check(size >= 1, "{}: the input has no rows or no columns, expected at least one", op);
}

/// At how many positions a window fits: floor((size + 2*padding - dilation*(kernel - 1) - 1) / stride) + 1.
/// Throws Error naming `op` when a number makes no sense or the window fits nowhere.
inline std::int64_t window_positions(const char* op, std::int64_t size, std::int64_t kernel, std::int64_t stride,
                                     std::int64_t padding, std::int64_t dilation) {
  check_window(op, size, kernel, stride, padding, dilation);
  const std::int64_t padded = size + 2 * padding, extent = dilation * (kernel - 1) + 1;
  check(extent <= padded,
        "{}: the kernel covers {} positions but the input has {} with its padding: use a smaller kernel or "
        "more padding",
        op, extent, padded);
  return (padded - extent) / stride + 1;
}

/// The size that a window at `positions` positions makes in a transposed convolution, PyTorch's formula:
/// (positions - 1)*stride - 2*padding + dilation*(kernel - 1) + 1 + extra, where `extra`, the output padding, chooses
/// among the sizes that have as many positions. Throws Error naming `op` when a number makes no sense or nothing is
/// left.
inline std::int64_t window_coverage(const char* op, std::int64_t positions, std::int64_t kernel, std::int64_t stride,
                                    std::int64_t padding, std::int64_t dilation, std::int64_t extra) {
  check_window(op, positions, kernel, stride, padding, dilation);
  check(extra >= 0 && extra < std::max(stride, dilation),
        "{}: output_padding is {}, expected at least 0 and less than the stride {} or the dilation {}", op, extra,
        stride, dilation);
  const std::int64_t size = (positions - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + extra;
  check(size >= 1 && size <= kLargestWindow,
        "{}: the result would have {} rows or columns, expected 1 to {}: change padding {}, stride {} or dilation {}",
        op, size, kLargestWindow, padding, stride, dilation);
  return size;
}

}  // namespace detail
}  // namespace halfgrad
