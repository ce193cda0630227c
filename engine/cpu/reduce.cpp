// Reductions on the CPU: sum, product, extrema, positions of extrema, running sums.

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/reduction.h"

namespace halfgrad {
namespace {

// The kernel tables are indexed by dtype and op.
static_assert(static_cast<int>(f16) == 0 && static_cast<int>(f64) == 2 && static_cast<int>(boolean) == 6);
static_assert(static_cast<int>(ReduceOp::sum) == 0 && static_cast<int>(ReduceOp::all) == 5);

// y[i * stride] = scale * values[i], rounded once.
template <class Number>
void store_results(const View& y, std::int64_t offset, std::int64_t stride, const Number* values, std::int64_t n,
                   double scale) {
  visit_dtype(y.dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y.at(offset));
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<Number> || std::is_integral_v<T>) {
        out[i * stride] = static_cast<T>(values[i]);
      } else {
        out[i * stride] = static_cast<T>(static_cast<double>(values[i]) * scale);
      }
    }
  });
}

template <class Number>
void reduce_with(cpu::ReduceKernels::Tile tile_kernel, cpu::ReduceKernels::Merge merge_kernel,
                 const cpu::Reduction& plan, const View& y, const View& x, double scale) {
  using Tile = cpu::Reduction::Tile;
  plan.run<Number>(
      1,
      [&](Number* out, const Tile& t) {
        tile_kernel(out, x.at(t.offset[0]), t.width, t.width_stride[0], t.length, t.length_stride[0]);
      },
      [&](Number* a, const Number* b, std::int64_t width) { merge_kernel(a, b, width); },
      [&](const Number* result, const Tile& t) {
        store_results(y, t.out_offset, t.out_stride, result, t.width, scale);
      });
}

// f(offset in a, offset in b) for every line along `dim` of views a and b, whose other dimensions agree.
template <class F>
void for_each_line(const View& a, const View& b, int dim, F f) {
  Shape lines = a.shape;
  lines[static_cast<std::size_t>(dim)] = 1;
  if (b.numel() == 0) return;
  const std::int64_t length = b.shape[static_cast<std::size_t>(dim)];
  cpu::parallel_for(lines.numel(), std::max<std::int64_t>(1, 16384 / length),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line) {
                        std::int64_t rest = line, a_offset = 0, b_offset = 0;
                        for (std::size_t d = lines.size(); d-- > 0;) {
                          const std::int64_t at = rest % lines[d];
                          rest /= lines[d];
                          a_offset += at * a.strides[d];
                          b_offset += at * b.strides[d];
                        }
                        f(a_offset, b_offset);
                      }
                    });
}

}  // namespace

void CpuBackend::reduce(ReduceOp op, const View& y, const View& x, double scale) {
  std::uint64_t reduced = 0;
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (x.shape[d] != y.shape[d]) reduced |= std::uint64_t{1} << d;
  const cpu::Reduction plan(x.shape, reduced, {&x.strides}, y.strides);
  const auto& kernels = cpu::kernels().reduce;
  const auto op_index = static_cast<std::size_t>(op), dtype = static_cast<std::size_t>(x.dtype);
  const auto run = [&]<class Number>(Number) {
    reduce_with<Number>(kernels.tile[op_index][dtype], kernels.merge[op_index][dtype], plan, y, x, scale);
  };
  switch (compute_dtype(x.dtype)) {
    case f32:
      return run(float());
    case f64:
      return run(double());
    default:
      return run(std::int64_t());
  }
}

void CpuBackend::arg_reduce(Extremum op, const View& y, const View& x, int dim) {
  const auto kernel = cpu::kernels().reduce.position[static_cast<int>(op)][static_cast<int>(x.dtype)];
  const auto d = static_cast<std::size_t>(dim);
  for_each_line(y, x, dim, [&](std::int64_t y_offset, std::int64_t x_offset) {
    y.as<std::int64_t>()[y_offset] = kernel(x.at(x_offset), x.shape[d], x.strides[d]);
  });
}

void CpuBackend::cumsum(const View& y, const View& x, int dim, bool reverse) {
  const auto kernel = cpu::kernels().reduce.cumsum[static_cast<int>(x.dtype)];
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t n = x.shape[d], last = n - 1;
  for_each_line(y, x, dim, [&](std::int64_t y_offset, std::int64_t x_offset) {
    if (reverse) {  // from the end, with negative steps
      kernel(y.at(y_offset + last * y.strides[d]), x.at(x_offset + last * x.strides[d]), n, -y.strides[d],
             -x.strides[d]);
    } else {
      kernel(y.at(y_offset), x.at(x_offset), n, y.strides[d], x.strides[d]);
    }
  });
}

}  // namespace halfgrad
