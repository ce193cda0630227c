#pragma once
// Putting tensors together, taking them apart, and changing their borders.

#include "engine/tensor.h"

namespace halfgrad {

/// Joins tensors along dim; their other sizes agree. Mixed dtypes are promoted.
Tensor cat(const Tensors& tensors, std::int64_t dim = 0);
/// Joins tensors of one shape along a new dimension.
Tensor stack(const Tensors& tensors, std::int64_t dim = 0);

/// Views of `size` positions each along dim, the last one maybe shorter.
Tensors split(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
/// Views of the given sizes, which add up to the size of dim.
Tensors split(const Tensor& x, const Shape& sizes, std::int64_t dim = 0);
/// At most `count` views of equal size, the last one maybe shorter.
Tensors chunk(const Tensor& x, std::int64_t count, std::int64_t dim = 0);

/// Adds a border of `value`: pads = {before, after} of the last dimension, then of the one before it, and so
/// on. Negative numbers crop.
Tensor pad(const Tensor& x, const Shape& pads, double value = 0);

/// A copy in reverse order along dims.
Tensor flip(const Tensor& x, const Shape& dims);

}  // namespace halfgrad
