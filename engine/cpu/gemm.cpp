// The plan of a matrix product: which form the problem is brought into, and how it is cut into blocks for the
// threads.
//
// The cuts depend on the shape alone, and no cut goes through k, so every number of threads gives the same
// bits.

#include "engine/cpu/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <utility>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad::cpu {
namespace {

// A batch of products: GemmProblem describes the first, the steps lead from one to the next.
template <class T>
struct Batch {
  GemmProblem<T> first;
  std::int64_t count;
  std::ptrdiff_t a_step, b_step, c_step;
};

template <class T>
Batch<T> describe(const View& c, const View& a, const View& b, const View& bias, Activation activation) {
  Batch<T> batch = {};
  GemmProblem<T>& p = batch.first;
  batch.count = c.shape[0];
  p.m = c.shape[1];
  p.n = c.shape[2];
  p.k = a.shape[2];
  p.a = a.as<const T>();
  p.a_row = a.strides[1];
  p.a_col = a.strides[2];
  p.b = b.as<const T>();
  p.b_row = b.strides[1];
  p.b_col = b.strides[2];
  p.c = c.as<T>();
  p.c_row = c.strides[1];
  p.c_col = c.strides[2];
  p.bias = bias.as<const T>();
  p.bias_col = bias ? bias.strides[0] : 0;
  p.lowest = lowest_of(activation);
  batch.a_step = a.strides[0];
  batch.b_step = b.strides[0];
  batch.c_step = c.strides[0];
  return batch;
}

// The same problem with c transposed: c' = b' x a'.
template <class T>
void transpose(GemmProblem<T>& p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(p.a_row, p.b_col);
  std::swap(p.a_col, p.b_row);
  std::swap(p.c_row, p.c_col);
  std::swap(p.bias_row, p.bias_col);
}

template <class T>
void simplify(Batch<T>& batch) {
  GemmProblem<T>& p = batch.first;
  // Several matrices times the same b are one taller matrix times b, if their rows follow each other.
  if (batch.count > 1 && batch.b_step == 0 && batch.a_step == p.m * p.a_row && batch.c_step == p.m * p.c_row) {
    p.m *= batch.count;
    batch.count = 1;
  }
  // Vectors read and write along rows of c. A few columns are better seen as a few rows.
  const bool down_columns = p.c_row == 1 && p.c_col != 1 && p.n > 1;
  const bool narrow = p.n <= kGemmDotRows && p.m > kGemmDotRows;
  const bool low = p.m <= kGemmDotRows && p.n > kGemmDotRows;
  if (narrow || (down_columns && !low)) {
    transpose(p);
    std::swap(batch.a_step, batch.b_step);
  }
}

// Work for one thread at a time: enough multiply-adds to be worth handing over.
constexpr std::int64_t kTaskWork = std::int64_t{1} << 19;
// A lone product is cut at least into so many tasks, if they stay large enough.
constexpr std::int64_t kTasks = 4;

struct Cut {
  std::int64_t size, count;
};

// Cuts `size` into the fewest equal parts that are at most `most` and a multiple of `unit`.
Cut cut(std::int64_t size, std::int64_t most, std::int64_t unit) {
  const std::int64_t count = std::max<std::int64_t>(1, (size + most - 1) / most);
  const std::int64_t part = ((size + count - 1) / count + unit - 1) / unit * unit;
  return {part, std::max<std::int64_t>(1, (size + part - 1) / std::max<std::int64_t>(part, 1))};
}

// Calls run(problem) for every block of every product of the batch, on several threads.
template <class T, class Run>
void for_each_block(const Batch<T>& batch, const Run& run) {
  const GemmProblem<T>& whole = batch.first;
  constexpr std::int64_t kUnit = 32;  // a multiple of every instruction set's tile
  const std::int64_t work = whole.m * whole.n * std::max<std::int64_t>(whole.k, 1);
  Cut columns = cut(whole.n, kGemmBlockColumns, kUnit);
  Cut rows = cut(whole.m, kGemmBlockRows, 1);
  const std::int64_t wanted = std::min(kTasks, work * batch.count / kTaskWork);
  // Every cut through the columns prepares a once more, every cut through the rows packs b once more.
  while (rows.count * columns.count * batch.count < wanted) {
    if (columns.size >= 4 * kUnit && columns.size >= rows.size) {
      columns = cut(whole.n, columns.size / 2, kUnit);
    } else if (rows.size >= 112) {
      rows = cut(whole.m, (rows.size + 1) / 2, 1);
    } else if (columns.size >= 2 * kUnit) {
      columns = cut(whole.n, columns.size / 2, kUnit);
    } else if (rows.size >= 28) {
      rows = cut(whole.m, (rows.size + 1) / 2, 1);
    } else {
      break;
    }
  }

  const std::int64_t per_product = rows.count * columns.count;
  const std::int64_t grain = std::max<std::int64_t>(1, kTaskWork / std::max<std::int64_t>(work / per_product, 1));
  parallel_for(batch.count * per_product, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t item = task / per_product;
      const std::int64_t i = task % per_product / columns.count * rows.size;
      const std::int64_t j = task % columns.count * columns.size;
      GemmProblem<T> p = whole;
      p.m = std::min(rows.size, whole.m - i);
      p.n = std::min(columns.size, whole.n - j);
      p.a += item * batch.a_step + i * p.a_row;
      p.b += item * batch.b_step + j * p.b_col;
      p.c += item * batch.c_step + i * p.c_row + j * p.c_col;
      if (p.bias != nullptr) p.bias += i * p.bias_row + j * p.bias_col;
      run(p);
    }
  });
}

template <class T>
void multiply(Batch<T> batch, void (*block)(const GemmProblem<T>&, float*), void (*dots)(const GemmProblem<T>&)) {
  simplify(batch);
  const GemmProblem<T>& p = batch.first;
  if (p.m <= kGemmDotRows && p.a_col == 1 && p.b_row == 1 && p.k > 0) {
    for_each_block(batch, dots);
  } else {
    for_each_block(batch, [&](const GemmProblem<T>& part) {
      const Scratch scratch(kGemmScratch * sizeof(float));
      block(part, scratch.as<float>());
    });
  }
}

// f64, for checking gradients, is Eigen's.
void multiply_f64(const Batch<double>& batch) {
  using Stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  using Matrix = Eigen::Map<Eigen::MatrixXd, 0, Stride>;
  using ConstMatrix = Eigen::Map<const Eigen::MatrixXd, 0, Stride>;
  for_each_block(batch, [](const GemmProblem<double>& p) {
    Matrix c(p.c, p.m, p.n, Stride(p.c_col, p.c_row));
    if (p.k == 0) {
      c.setZero();
    } else {
      c.noalias() =
          ConstMatrix(p.a, p.m, p.k, Stride(p.a_col, p.a_row)) * ConstMatrix(p.b, p.k, p.n, Stride(p.b_col, p.b_row));
    }
    if (p.bias != nullptr) c += ConstMatrix(p.bias, p.m, p.n, Stride(p.bias_col, p.bias_row));
    if (p.lowest == 0) c = (c.array() < 0).select(0.0, c);
  });
}

}  // namespace

void gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation) {
  if (c.numel() == 0) return;
  const GemmKernels& kernel = kernels().gemm;
  switch (c.dtype) {
    case f16:
      return multiply(describe<std::uint16_t>(c, a, b, bias, activation), kernel.block_f16, kernel.dots_f16);
    case f64:
      return multiply_f64(describe<double>(c, a, b, bias, activation));
    default:
      return multiply(describe<float>(c, a, b, bias, activation), kernel.block_f32, kernel.dots_f32);
  }
}

}  // namespace halfgrad::cpu

namespace halfgrad {

void CpuBackend::gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation) {
  cpu::gemm(c, a, b, bias, activation);
}

}  // namespace halfgrad
