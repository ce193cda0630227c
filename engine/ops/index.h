#pragma once
// Reading and adding at positions that are data. An index is an i32 or i64 tensor; each of its values must be
// in [0, size of dim), which is checked. Sums into f16 are made in f32 and rounded once; their order is
// fixed.

#include "engine/tensor.h"

namespace halfgrad {

/// y[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. index has x's rank and is nowhere larger except
/// along dim; y has its shape.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);

/// A copy of x with x[index[i][j][k]][j][k] += src[i][j][k] for dim 0, and so on. src has index's shape and
/// x's dtype.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);

/// The slices of x along dim that the vector `index` names, in its order.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);

/// A copy of x in which slice i of src was added to slice index[i] of x along dim. src has x's dtype.
Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);

/// Rows of weight [V, D]: indices [...] give [..., D]. The row `padding_idx` gets no gradient; -1: there is
/// none.
Tensor embedding(const Tensor& indices, const Tensor& weight, std::int64_t padding_idx = -1);

/// indices [...] -> [..., num_classes], i64: 1 at the index, else 0. -1 infers num_classes from the largest
/// index.
Tensor one_hot(const Tensor& indices, std::int64_t num_classes = -1);

}  // namespace halfgrad
