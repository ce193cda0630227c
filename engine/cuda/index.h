#pragma once
// The kernels that look elements up. index.cpp makes their plans. In all of them an index tells how often to step by
// `along` in the memory that is looked up.

#include <cstdint>

#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

/// y = x[index], in a space of y, index and x. Words of 1, 2, 4, 8 or 16 bytes, whatever they mean.
void gather(std::size_t bytes, const Space&, void* y, const std::int64_t* index, const void* x, std::int64_t along,
            const Queue&);

/// The elements of one line of src, which are added one after the other.
struct Scatter {
  std::int64_t length = 0, src_stride = 0, index_stride = 0, along = 0;
};

/// y[index] += src, for lines of src, index and y. Elements of one line may have the same index, those of two do not meet.
void scatter_lines(DType dtype, const Lines&, const Scatter&, const Queue&);
/// The same where all lines (of src and y, here) have one index: y[index[i]] += src[i] for whole rows.
void scatter_rows(DType dtype, const Lines&, const std::int64_t* index, const Scatter&, const Queue&);

}  // namespace halfgrad::cuda
