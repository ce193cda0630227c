#pragma once
// The kernels of reductions, positions of extrema and running sums. reduce.cpp and positions.cpp make their plans.

#include <cstdint>

#include "engine/cuda/lines.h"

namespace halfgrad::cuda {

/// Long lines are cut into chunks, which are reduced side by side: of `size` elements, `count` of them in this launch. The
/// result of chunk c goes to element (first + c) * stride behind the one where that of the line would go.
struct Chunks {
  std::uint32_t size = 0, count = 1;
  std::int64_t first = 0, stride = 0;
};

/// y = scale * reduction of x, for lines of x and y. `op` is a ReduceOp (engine/backend.h) as a number; x is computed in
/// `compute`: f32, f64 or i64.
void reduce(int op, DType compute, const Lines&, const Chunks&, double scale, const Queue&);

/// One dimension that an op goes along: element i is i * stride from the first, and they come in chunks.
struct Along {
  std::int64_t length = 0, x_stride = 0, y_stride = 0;
  std::int64_t chunk = 0, chunks = 1;
};

/// The position of the first extremum of each chunk of each line of x, in lines of x and y. With `candidates`, along.length
/// positions for each line, only these are looked at. Written to `chunk_results` (one per line and chunk), or, when that is
/// null, to y.
void position(bool largest, DType compute, const Lines&, const Along&, const std::int64_t* candidates,
              std::int64_t* chunk_results, const Queue&);

/// The running sums of each chunk of each line, in double for floats and in int64 for integers, from the end if `reverse`.
/// y gets them all, on top of `before` (the sum up to and with each chunk); when y is absent, `totals` gets the last of each
/// chunk. Both are arrays of one number per line and chunk.
void running_sum(DType compute, const Lines&, const Along&, bool reverse, const void* before, void* totals,
                 const Queue&);

}  // namespace halfgrad::cuda
