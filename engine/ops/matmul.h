#pragma once
// Matrix products. f16 is multiplied and summed in f32 and rounded once.

#include "engine/activation.h"
#include "engine/tensor.h"

namespace halfgrad {

/// The product of matrices a [..., M, K] and b [..., K, N]: [..., M, N]. Leading dimensions are batches and
/// broadcast. A vector on the left is a row, on the right a column, and its dimension is not in the result
/// (two vectors: the dot product, rank 0). Both must have the same float dtype.
Tensor matmul(const Tensor& a, const Tensor& b);

/// activation(x [..., in] * weight [out, in]^T + bias [out]): [..., out]. bias may be undefined. All have the same float
/// dtype.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

}  // namespace halfgrad
