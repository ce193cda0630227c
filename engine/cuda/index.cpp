// Gather and scatter on the GPU. index_select and index_add are gather and scatter_add with an index that is the same along
// every dimension but one: stride 0.

#include "engine/cuda/index.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/line_plan.h"
#include "engine/cuda/pieces.h"
#include "engine/error.h"

namespace halfgrad {

namespace {

using cuda::LinePlan;
using cuda::Lines;
using cuda::Scatter;

constexpr std::int64_t kShort = 32;   // elements that a thread adds one after the other, and nobody minds
constexpr std::int64_t kRows = 4096;  // that are searched for rows of the same index

View without_dim(View view, int dim) {
  view.shape[static_cast<std::size_t>(dim)] = 1;
  return view;
}
std::int64_t stride_of(const View& view, int dim) { return view.strides[static_cast<std::size_t>(dim)]; }

// A vector of indices as an index of the given shape.
View expand_index(const View& index, const Shape& shape, int dim) {
  View expanded{index.data, index.dtype, shape, Strides(shape.size(), 0), index.device};
  expanded.strides[static_cast<std::size_t>(dim)] = index.strides[0];
  return expanded;
}

// y = x[index] in words: whole rows of neighbours are moved by 16 bytes.
struct Words {
  LoopNest nest;  // y, index, x
  std::int64_t along;
  std::size_t bytes;

  // Two neighbours become one word of twice the size, if they do so everywhere.
  bool widen(const View& y, const View& x) {
    const std::size_t last = nest.shape.size() - 1;
    const auto is_even = [&](const Strides& strides) {
      for (std::size_t d = 0; d < last; ++d)
        if (strides[d] % 2 != 0) return false;
      return strides[last] == 1;
    };
    const auto is_aligned = [&](const View& view) {
      return reinterpret_cast<std::uintptr_t>(view.data) % (2 * bytes) == 0;
    };
    if (bytes == 16 || nest.shape[last] % 2 != 0 || along % 2 != 0 || nest.strides[1][last] != 0 ||
        !is_even(nest.strides[0]) || !is_even(nest.strides[2]) || !is_aligned(y) || !is_aligned(x))
      return false;
    nest.shape[last] /= 2;
    nest.numel /= 2;
    for (std::size_t k : {std::size_t{0}, std::size_t{2}})
      for (std::size_t d = 0; d < last; ++d) nest.strides[k][d] /= 2;
    along /= 2;
    bytes *= 2;
    return true;
  }
};

}  // namespace

void CudaBackend::check_index(const char* op, const View& out, const View& index, std::int64_t size) {
  if (out.numel() == 0) return;
  const auto bytes = static_cast<std::int64_t>(size_of(index.dtype));
  for (const cuda::Piece& piece : cuda::pieces(LoopNest{&out, &index}))
    cuda::check_index(op, cuda::space_of(piece), out.as<std::int64_t>() + piece.begin[0],
                      index.as<char>() + piece.begin[1] * bytes, index.dtype, size,
                      static_cast<cuda::BadIndex*>(bad_index_.data()), piece.begin[0], queue());
}

// Called where the results of earlier work have just arrived.
void CudaBackend::throw_for(const cuda::BadIndex& bad) {
  if (bad.op == 0) return;
  HALFGRAD_CUDA(cudaMemsetAsync(bad_index_.data(), 0, sizeof(cuda::BadIndex), queue().stream));
  const char* const op = reinterpret_cast<const char*>(bad.op);
  fail("{}: index {} (element {}) is out of range, expected [0, {})", op, bad.value, bad.element, bad.size);
}

void CudaBackend::gather(const View& y, const View& x, const View& index, int dim) {
  if (y.numel() == 0) return;
  View lines_of_x = x;  // y's shape: what the index adds comes on top
  lines_of_x.shape = y.shape;
  lines_of_x.strides[static_cast<std::size_t>(dim)] = 0;
  Words words{LoopNest{&y, &index, &lines_of_x}, stride_of(x, dim), size_of(y.dtype)};
  while (words.widen(y, x)) {
  }
  const auto bytes = static_cast<std::int64_t>(words.bytes);
  for (const cuda::Piece& piece : cuda::pieces(words.nest))
    cuda::gather(words.bytes, cuda::space_of(piece), y.as<char>() + piece.begin[0] * bytes,
                 index.as<std::int64_t>() + piece.begin[1], x.as<char>() + piece.begin[2] * bytes, words.along,
                 queue());
}

void CudaBackend::scatter_add(const View& y, const View& index, const View& src, int dim) {
  check(y.dtype != f16 && y.dtype != boolean, "scatter_add: no sums in {}; add in a wider dtype", name_of(y.dtype));
  if (src.numel() == 0) return;
  Scatter scatter{src.shape[static_cast<std::size_t>(dim)], stride_of(src, dim), stride_of(index, dim),
                  stride_of(y, dim)};
  View lines_of_y = y;
  lines_of_y.shape = src.shape;
  const View y1 = without_dim(lines_of_y, dim), index1 = without_dim(index, dim), src1 = without_dim(src, dim);

  bool one_index = true;  // for all lines
  for (std::size_t d = 0; d < index1.shape.size(); ++d)
    one_index = one_index && (index1.shape[d] == 1 || index1.strides[d] == 0);
  if (!one_index || scatter.length <= kShort) {
    for (const auto& part : LinePlan({&src1, &index1, &y1}, 0).parts(1, 1))
      cuda::scatter_lines(y.dtype, part.lines, scatter, queue());
    return;
  }
  // The rows are searched in chunks, in their order.
  const std::int64_t rows = scatter.length;
  for (const auto& part : LinePlan({&src1, &y1}, 0).parts(1, 1))
    for (std::int64_t first = 0; first < rows; first += kRows) {
      Lines lines = part.lines;
      lines.at[0].data = static_cast<char*>(lines.at[0].data) +
                         first * scatter.src_stride * static_cast<std::int64_t>(size_of(src.dtype));
      scatter.length = std::min(kRows, rows - first);
      cuda::scatter_rows(y.dtype, lines, index.as<std::int64_t>() + first * scatter.index_stride, scatter, queue());
    }
}

void CudaBackend::index_select(const View& y, const View& x, const View& index, int dim) {
  gather(y, x, expand_index(index, y.shape, dim), dim);
}

void CudaBackend::index_add(const View& y, const View& index, const View& src, int dim) {
  scatter_add(y, expand_index(index, src.shape, dim), src, dim);
}

}  // namespace halfgrad
