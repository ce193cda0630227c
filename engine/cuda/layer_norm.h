#pragma once
// The kernels of layer normalisation. layer_norm.cpp makes their plans.

#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

// Lines of a row each, computed in `compute`, f32 or f64; weight and bias may be absent.
void layer_norm(DType compute, const Lines&, const Vector& weight, const Vector& bias, double eps,
                const Queue&);                                                              // x, y, mean, rstd
void layer_norm_backward(DType compute, const Lines&, const Vector& weight, const Queue&);  // x, dy, dx, mean, rstd

/// Rows and columns of a matrix.
struct Matrix {
  Array array;
  std::int64_t row_stride = 0, column_stride = 0;
};

/// The sums over chunks of `chunk` rows that the gradients of weight and bias are made of: dweight[c][i], the sum of
/// dy (x - mean) rstd over the rows of chunk c in column i, and dbias[c][i], that of dy; [chunks, columns], in `compute`.
void layer_norm_column_sums(DType compute, const Matrix& x, const Matrix& dy, const Vector& mean, const Vector& rstd,
                            std::int64_t rows, std::int64_t columns, std::int64_t chunk, void* dweight, void* dbias,
                            const Queue&);

}  // namespace halfgrad::cuda
