#pragma once
// The kernels that look elements up. index.cpp makes their plans. In all of them an index tells how often to step by
// `along` in the memory that is looked up.

#include <cstdint>

#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

/// y = x[index], in a space of y, index and x. Words of 1, 2, 4, 8 or 16 bytes, whatever they mean.
void gather(std::size_t bytes, const Space&, void* y, const std::int64_t* index, const void* x, std::int64_t along,
            const Queue&);

/// The first index that was found out of range since somebody looked.
struct BadIndex {
  std::uint64_t op = 0;  ///< the address of its name on the host; 0: none was found
  std::int64_t value = 0, element = 0, size = 0;
};
/// out = index, in a space of out and index, where it is in [0, size), else 0, and a note in `bad`. `index` is i32 or i64;
/// `first` is the number of the element that `out` begins with.
void check_index(const char* op, const Space&, std::int64_t* out, const void* index, DType dtype, std::int64_t size,
                 BadIndex* bad, std::int64_t first, const Queue&);

/// The elements of one line of src, which are added one after the other.
struct Scatter {
  std::int64_t length = 0, src_stride = 0, index_stride = 0, along = 0;
};

/// y[index] += src, for lines of src, index and y. Elements of one line may have the same index, those of two do not meet.
void scatter_lines(DType dtype, const Lines&, const Scatter&, const Queue&);
/// The same where all lines (of src and y, here) have one index: y[index[i]] += src[i] for whole rows.
void scatter_rows(DType dtype, const Lines&, const std::int64_t* index, const Scatter&, const Queue&);

}  // namespace halfgrad::cuda
