// Random fills on the CPU. An element's number depends on its position alone, so chunks may run in any order.

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"
#include "engine/ops/elementwise_ops.h"
#include "engine/random_fill.h"

namespace halfgrad {

namespace {

using cpu::FillKernel;
using cpu::FillKernels;
using cpu::kernels;
using cpu::parallel_for;

constexpr std::int64_t kChunk = 1 << 14;  // a multiple of 4: chunks begin with a new counter
constexpr std::int64_t kPadding = 16;

template <class T>
void run(FillKernel<T> kernel, const RandomFill& fill, const View& y) {
  T* data = y.as<T>();
  parallel_for(y.numel(), kChunk,
               [&](std::int64_t begin, std::int64_t end) { kernel(fill, begin, end, data + begin); });
}

template <class T>
void run(cpu::MultiplyKernel<T> kernel, const RandomFill& fill, const View& y, const View& x) {
  T *out = y.as<T>(), *in = x.as<T>();
  parallel_for(y.numel(), kChunk,
               [&](std::int64_t begin, std::int64_t end) { kernel(fill, begin, end, out + begin, in + begin); });
}

bool is_row_major(const View& x) { return x.strides == contiguous_strides(x.shape); }

// The numbers of rows in row-major order, each row kPadding elements after the last: the product reads them across the rows,
// and rows a power of two apart would compete for the same places in the cache.
template <class T>
void fill_rows(FillKernel<T> kernel, const RandomFill& fill, std::int64_t first, std::int64_t rows, std::int64_t row,
               T* y) {
  const std::int64_t before = first % 4;  // elements to which the first counter belongs, too
  kernel(fill, first - before, first + rows * row, y);
  for (std::int64_t i = rows; i-- > 0;)
    std::memmove(y + i * (row + kPadding), y + before + i * row, static_cast<std::size_t>(row) * sizeof(T));
}

// Slice by slice: first the numbers, in row-major order, then a product, which finds its way through any layout.
void dropout_in_any_order(CpuBackend& backend, const RandomFill& fill, const View& y, const View& x) {
  if (y.numel() == 0) return;
  const DType dtype = compute_dtype(y.dtype);
  const std::size_t outer = y.shape.size() > 2 ? 2 : 1;  // a row is what lies behind these dimensions
  const std::int64_t slice = y.numel() / y.shape[0], row = outer == 2 ? slice / y.shape[1] : slice, rows = slice / row;
  const auto part_of = [](View view, std::int64_t begin, std::int64_t end) {
    view.data = view.at(begin * view.strides[0]);
    view.shape[0] = end - begin;
    return view;
  };
  parallel_for(y.shape[0], std::max<std::int64_t>(1, kChunk / slice), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n = (end - begin) * rows;
    const cpu::Scratch scratch(static_cast<std::size_t>(n * (row + kPadding)) * size_of(dtype));
    const View part = part_of(y, begin, end);
    View numbers{scratch.as<void>(), dtype, part.shape, contiguous_strides(part.shape)};
    numbers.strides[outer - 1] = row + kPadding;
    numbers.strides[0] = rows * (row + kPadding);
    if (dtype == f32)
      fill_rows(kernels().random.bernoulli.f32, fill, begin * slice, n, row, numbers.as<float>());
    else
      fill_rows(kernels().random.bernoulli.f64, fill, begin * slice, n, row, numbers.as<double>());
    backend.binary(elementwise::BinaryOps::position<elementwise::Mul>(), dtype, part, part_of(x, begin, end), numbers);
  });
}

}  // namespace

void CpuBackend::random(Distribution kind, const View& y, double a, double b, std::uint64_t seed,
                        std::uint64_t offset) {
  // Elements are numbered in row-major order: anything but a row-major float tensor is filled by way of one.
  if (!is_floating(y.dtype) || !is_row_major(y)) {
    const DType dtype = is_floating(y.dtype) ? y.dtype : f32;
    const cpu::Scratch scratch(static_cast<std::size_t>(y.numel()) * size_of(dtype));
    const View dense{scratch.as<void>(), dtype, y.shape, contiguous_strides(y.shape)};
    random(kind, dense, a, b, seed, offset);
    return copy(y, dense);
  }

  const RandomFill fill = random_fill(y.dtype, a, kind == Distribution::bernoulli ? 1 : b, seed, offset);
  const FillKernels& fills = kind == Distribution::uniform  ? kernels().random.uniform
                             : kind == Distribution::normal ? kernels().random.normal
                                                            : kernels().random.bernoulli;
  if (y.dtype == f16)
    run(fills.f16, fill, y);
  else if (y.dtype == f32)
    run(fills.f32, fill, y);
  else
    run(fills.f64, fill, y);
}

void CpuBackend::dropout(const View& y, const View& x, double p, std::uint64_t seed, std::uint64_t offset) {
  const RandomFill fill = dropout_fill(p, seed, offset);
  if (!is_row_major(y) || !is_row_major(x)) return dropout_in_any_order(*this, fill, y, x);
  const auto& multiply = kernels().random.multiply_bernoulli;
  if (y.dtype == f16)
    run(multiply.f16, fill, y, x);
  else if (y.dtype == f32)
    run(multiply.f32, fill, y, x);
  else
    run(multiply.f64, fill, y, x);
}

}  // namespace halfgrad
