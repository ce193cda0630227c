#pragma once
// The space that an elementwise kernel walks through, in a form that fits into its arguments.

#include <cstdint>

namespace halfgrad::cuda {

/// Division by a number that is known before a kernel starts, as a multiplication and a shift; GPUs divide slowly.
/// Granlund and Montgomery, "Division by invariant integers using multiplication", 1994. For n and divisor below 2^31.
struct Divisor {
  std::uint32_t divisor = 1, magic = 1, shift = 0;

  Divisor() = default;
  explicit constexpr Divisor(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    magic = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d)) / d + 1);
  }
  constexpr std::uint32_t quotient(std::uint32_t n) const {
    return (static_cast<std::uint32_t>(std::uint64_t{n} * magic >> 32) + n) >> shift;
  }
};

/// A loop nest (engine/loops.h) for a kernel: it counts elements, and their positions in the operands, in 32 bits.
struct Space {
  static constexpr int kMaxRank = 8;
  static constexpr int kMaxOperands = 6;
  std::uint32_t numel = 0;
  int rank = 0;
  Divisor size[kMaxRank];  // outermost first
  std::uint32_t stride[kMaxOperands][kMaxRank] = {};

  /// at[k]: where element `i` of the space lies in operand k.
  template <int kOperands>
  constexpr void positions(std::uint32_t i, std::uint32_t (&at)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const std::uint32_t rest = d > 0 ? size[d].quotient(i) : 0;
      const std::uint32_t index = i - rest * size[d].divisor;
      for (int k = 0; k < kOperands; ++k) at[k] += index * stride[k][d];
      i = rest;
    }
  }
  /// Where element `i` lies in one of the operands.
  constexpr std::uint32_t position(std::uint32_t i, int operand) const {
    std::uint32_t at = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const std::uint32_t rest = d > 0 ? size[d].quotient(i) : 0;
      at += (i - rest * size[d].divisor) * stride[operand][d];
      i = rest;
    }
    return at;
  }
};

}  // namespace halfgrad::cuda
