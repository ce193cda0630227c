#pragma once
// The kernels of softmax and cross entropy. softmax.cpp makes their plans.

#include "engine/cuda/index.h"
#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

// All are computed in `compute`: f32 or f64.

void softmax(DType compute, bool log, const Lines&, const Queue&);           // x, y
void softmax_backward(DType compute, bool log, const Lines&, const Queue&);  // y, dy, dx

/// What belongs to cross entropy besides its lines; see Backend::cross_entropy.
struct CrossEntropy {
  Vector weight;
  double smoothing = 0;
  std::int64_t ignore_index = 0;
  /// Numbers of `compute`, one for each line, which lie as the loss does (or, in backward, as `most` does). May be null.
  void *share = nullptr, *log_sum = nullptr, *most = nullptr;
  const void* divisor = nullptr;  // one number, or null
  BadIndex* bad = nullptr;        // where targets out of range are noted, and as what: `op`, and where the lines begin
  BadIndex note;
};
void cross_entropy(DType compute, const Lines&, const CrossEntropy&, const Queue&);           // x, target, loss
void cross_entropy_backward(DType compute, const Lines&, const CrossEntropy&, const Queue&);  // x, target, dx, dy, most

}  // namespace halfgrad::cuda
