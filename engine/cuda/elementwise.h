#pragma once
// What the host says to the elementwise kernels. elementwise.cpp makes it of views; unary.cu, binary.cu, copy.cu and so on
// run it.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/cuda/space.h"
#include "engine/dtype.h"

namespace halfgrad::cuda {

/// An operand of a kernel: memory, or one number for all elements (a literal; 0 when the operand is absent).
struct Operand {
  void* data = nullptr;  // null: it is the number
  DType dtype = f32;
  bool moves = true;     // false: all elements are the first
  bool is_whole = true;  // which of the two the number is
  double fraction = 0;
  std::int64_t whole = 0;
};

/// The dtypes of which eight elements can be moved at a time, and what their address must be a multiple of.
constexpr bool moves_by_eight(DType t) { return t == f16 || t == f32 || t == u8 || t == boolean; }
constexpr std::uintptr_t alignment_of_eight(DType t) { return t == f16 || t == f32 ? 16 : 8; }

/// One launch of an elementwise kernel: results first, then what they are made of.
struct Elementwise {
  Space space;
  Operand operands[Space::kMaxOperands];
  /// The space is a single run along which every operand either is dense and can be moved eight elements at a time, or
  /// does not move.
  bool by_eight = false;
};

// Each runs op number `op`, computed in `compute` (f32, f64 or i64).
void unary(int op, const double* params, DType compute, const Elementwise&, const Queue&);           // y, x
void unary_backward(int op, const double* params, DType compute, const Elementwise&, const Queue&);  // dx, dy, x or y
void binary(int op, DType compute, const Elementwise&, const Queue&);                                // y, a, b
void binary_backward(int op, DType compute, const Elementwise&, const Queue&);  // da, db, dy, a, b, y
void select(DType compute, const Elementwise&, const Queue&);                   // y, condition, a, b
void convert(DType compute, const Elementwise&, const Queue&);                  // to, from
/// Copies numbers of `bytes` bytes each without looking at them.
void move(std::size_t bytes, const Elementwise&, const Queue&);  // to, from

}  // namespace halfgrad::cuda
