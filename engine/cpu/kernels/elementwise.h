#pragma once
// Inner loops of the elementwise ops. They run over rows of numbers where these lie: a broadcast operand is a row that
// is used again, or one number for a whole row. What lies otherwise, or has another dtype, is converted into a dense
// buffer first, and back afterwards, block by block, while the block is in the first-level cache.

#include <cstdint>

namespace halfgrad::cpu {

/// The types that are computed in; a position in the tables below. DType's f32, f64 and i64.
enum Compute : int { compute_f32, compute_f64, compute_i64, kComputeTypes };

/// The types that loops find in memory: those above, and halves, which are computed in f32.
enum Stored : int { stored_f16 = kComputeTypes, kStoredTypes };

/// Rows of one operand, `step` elements from each to the next. The numbers of a row lie side by side; of a `spread`
/// operand a row is one number, of the type that is computed in.
struct Rows {
  void* data = nullptr;
  std::int64_t step = 0;
  bool spread = false;
};

/// How many rows, and numbers in each.
struct Extent {
  std::int64_t rows, columns;
};

struct ElementwiseKernels {
  /// The operands of the first two are never spread.
  using Unary = void (*)(const double* params, Extent, const Rows& y, const Rows& x);
  /// kept: x or y, whichever the op reads.
  using UnaryBackward = void (*)(const double* params, Extent, const Rows& dx, const Rows& dy, const Rows& kept);
  using Binary = void (*)(Extent, const Rows& y, const Rows& a, const Rows& b);
  /// da or db may be absent, and y, when the op does not read it.
  using BinaryBackward = void (*)(Extent, const Rows& da, const Rows& db, const Rows& dy, const Rows& a, const Rows& b,
                                  const Rows& y);
  /// y = condition != 0 ? a : b
  using Select = void (*)(Extent, const Rows& y, const Rows& condition, const Rows& a, const Rows& b);
  /// Reads n numbers `stride` elements apart into a dense buffer (stride 0: the same number n times).
  using Load = void (*)(const void* src, std::int64_t stride, void* buffer, std::int64_t n);
  /// The reverse, rounding once.
  using Store = void (*)(const void* buffer, void* dst, std::int64_t stride, std::int64_t n);
  /// Moves n numbers without looking at them.
  using Move = void (*)(const void* src, std::int64_t src_stride, void* dst, std::int64_t dst_stride, std::int64_t n);

  const Unary (*unary)[kStoredTypes];                   // [op][type]; null for predicates of halves
  const UnaryBackward (*unary_backward)[kStoredTypes];  // null for integers, and where no gradient reads x or y
  const Binary (*binary)[kStoredTypes];
  const BinaryBackward (*binary_backward)[kStoredTypes];
  const Select* select;               // [compute]
  const Load (*load)[kComputeTypes];  // [dtype][compute]
  const Store (*store)[kComputeTypes];
  const Move* move;  // [log2 of the element's size in bytes]
};

}  // namespace halfgrad::cpu
