#pragma once
// The iteration space of an elementwise op, brought into the order of memory.
//
// Dimensions of size 1 are dropped, the others sorted so that the output is walked through in the order in which it
// lies in memory, and neighbours that lie dense behind each other in every operand are merged. Most ops end up with a
// single dimension: one long run.

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/backend.h"

namespace halfgrad {

struct LoopNest {
  /// At most this many operands (da, db, dy, a, b, y).
  static constexpr int kMaxOperands = 6;

  Shape shape;                                // outermost first; at least one dimension
  std::array<Strides, kMaxOperands> strides;  // of each operand, in elements
  std::int64_t numel = 0;

  /// operands[0] is the output, which decides the order. All have the same shape. Absent operands are allowed.
  LoopNest(std::initializer_list<const View*> operands);

  /// The whole space is one run of this operand with stride 1 (or of one element).
  bool is_dense(int operand) const {
    return shape.rank() == 1 && (strides[static_cast<std::size_t>(operand)][0] == 1 || numel == 1);
  }

  /// Calls f(offset, stride, done, n) for the runs that make up elements [begin, end) of the space as they lie in the
  /// memory of K operands: n elements from offset[k] on, stride[k] apart; `done` elements of the range came before.
  template <std::size_t K, class F>
  void for_runs(const std::array<int, K>& operands, std::int64_t begin, std::int64_t end, F&& f) const {
    const std::size_t last = shape.size() - 1;
    std::array<std::int64_t, K> offset{}, stride{};
    const auto strides_of = [&](std::size_t k) -> const Strides& {
      return strides[static_cast<std::size_t>(operands[k])];
    };
    Shape index(shape.size(), 0);
    std::int64_t rest = begin;
    for (std::size_t d = last + 1; d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
      for (std::size_t k = 0; k < K; ++k) offset[k] += index[d] * strides_of(k)[d];
    }
    for (std::size_t k = 0; k < K; ++k) stride[k] = strides_of(k)[last];
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t n = std::min(shape[last] - index[last], end - at);
      f(offset, stride, at - begin, n);
      at += n;
      // To the start of the next run: one step in the innermost dimension but one, with carries.
      for (std::size_t k = 0; k < K; ++k) offset[k] -= index[last] * stride[k];
      index[last] = 0;
      for (std::size_t d = last; d-- > 0;) {
        const bool carry = ++index[d] == shape[d];
        for (std::size_t k = 0; k < K; ++k) offset[k] += (carry ? 1 - shape[d] : 1) * strides_of(k)[d];
        if (!carry) break;
        index[d] = 0;
      }
    }
  }
};

}  // namespace halfgrad
