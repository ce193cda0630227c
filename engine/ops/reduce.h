#pragma once
// Reductions: many elements in, one out.
//
// `dims` names the dimensions that are reduced (negative ones count from the end); an empty list means all of
// them. They stay with size 1 when `keepdim`, else they disappear. f16 and f32 are accumulated in f32 and
// rounded once, in blocks that are added pairwise: the error of a sum of n numbers is at most (40 + log2 n) *
// 2^-24 times the sum of their magnitudes, and its bits do not depend on the number of threads.

#include "engine/tensor.h"

namespace halfgrad {

/// Integers and bools are summed as i64. 0 when there is nothing to sum.
Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Floats only. NaN when there is nothing to average.
Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Integers and bools are multiplied as i64. 1 when there is nothing to multiply. The gradient is right with
/// zeros, too.
Tensor prod(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// NaN wins. Equal extrema share the gradient equally. Throws Error when a reduced dimension is empty.
Tensor max(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor min(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// The sum of squared distances from the mean, divided by n - correction: 1 gives the unbiased estimate, 0
/// the variance of the numbers themselves. NaN when n - correction is 0 or less and all numbers are equal.
Tensor var(const Tensor& x, const Shape& dims = {}, bool keepdim = false, double correction = 1);
/// The square root of var(); its gradient is 0 where all numbers are equal.
Tensor stddev(const Tensor& x, const Shape& dims = {}, bool keepdim = false, double correction = 1);
/// (sum of |x|^p)^(1/p); p = infinity: the largest |x|, -infinity: the smallest, 0: how many are not 0. The
/// gradient is 0 where x is 0.
Tensor norm(const Tensor& x, double p = 2, const Shape& dims = {}, bool keepdim = false);
/// log(sum of e^x) without overflow; -infinity when all x are.
Tensor logsumexp(const Tensor& x, const Shape& dims = {}, bool keepdim = false);

/// Position (i64) of the first largest or smallest element along dim; the first NaN, if there is one. Throws
/// Error when dim is empty.
Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim = false);
/// The same over the flattened tensor: rank 0.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);

/// y[i] = x[0] + ... + x[i] along dim; integers and bools as i64.
Tensor cumsum(const Tensor& x, std::int64_t dim);

/// Is any (are all) of the elements different from 0? bool; false (true) when there are none.
Tensor any(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Shape& dims = {}, bool keepdim = false);

}  // namespace halfgrad
