#pragma once
// Reductions, running sums, softmax and layer normalisation go along lines: a line is all elements of a tensor that differ
// only in the dimensions that the op goes along. line_plan.cpp makes lines of views; lines.cuh walks along them.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/cuda/space.h"
#include "engine/dtype.h"

namespace halfgrad::cuda {

/// Memory of a dtype; null: absent.
struct Array {
  void* data = nullptr;
  DType dtype = f32;
};

/// The lines of up to five operands, for one launch. Each operand has either elements along the line or one for all of it.
struct Lines {
  static constexpr int kMaxOperands = 5;
  Space lines;             // where each line begins, in every operand
  Space elements;          // where its elements are from there on
  Array at[kMaxOperands];  // the first element of the first line
  unsigned group = 1;      // so many threads handle a line together: 1, 32 or 256
  bool by_eight = false;   // all that lies along a line is dense, and can be moved eight elements at a time
};

/// A parameter or a statistic, of any float dtype: element i is at data[i * stride].
struct Vector {
  Array array;
  std::int64_t stride = 1;
  bool by_eight = false;  ///< it can be moved eight elements at a time
};

}  // namespace halfgrad::cuda
