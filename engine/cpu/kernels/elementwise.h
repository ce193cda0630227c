#pragma once
// Inner loops of the elementwise ops. They run over dense buffers of the type that is computed in; conversion from and
// to the tensor's dtype happens before and after, block by block, while the block is in the first-level cache.

#include <cstdint>

namespace halfgrad::cpu {

/// The types that are computed in; a position in the tables below. DType's f32, f64 and i64.
enum Compute : int { compute_f32, compute_f64, compute_i64, kComputeTypes };

struct ElementwiseKernels {
  using Unary = void (*)(const double* params, const void* x, void* y, std::int64_t n);
  /// x or y is null when the op does not read it.
  using UnaryBackward = void (*)(const double* params, const void* dy, const void* x, const void* y, void* dx,
                                 std::int64_t n);
  using Binary = void (*)(const void* a, const void* b, void* y, std::int64_t n);
  /// da or db may be null.
  using BinaryBackward = void (*)(const void* dy, const void* a, const void* b, const void* y, void* da, void* db,
                                  std::int64_t n);
  using Select = void (*)(const void* condition, const void* a, const void* b, void* y, std::int64_t n);
  /// Reads n numbers `stride` elements apart into a dense buffer (stride 0: the same number n times).
  using Load = void (*)(const void* src, std::int64_t stride, void* buffer, std::int64_t n);
  /// The reverse, rounding once.
  using Store = void (*)(const void* buffer, void* dst, std::int64_t stride, std::int64_t n);
  /// Moves n numbers without looking at them.
  using Move = void (*)(const void* src, std::int64_t src_stride, void* dst, std::int64_t dst_stride, std::int64_t n);

  const Unary (*unary)[kComputeTypes];                   // [op][compute]
  const UnaryBackward (*unary_backward)[kComputeTypes];  // null for integers and predicates
  const Binary (*binary)[kComputeTypes];
  const BinaryBackward (*binary_backward)[kComputeTypes];
  const Select* select;               // [compute]; the condition is u8
  const Load (*load)[kComputeTypes];  // [dtype][compute]
  const Store (*store)[kComputeTypes];
  const Move* move;  // [log2 of the element's size in bytes]
};

}  // namespace halfgrad::cpu
