#include "engine/ops/reduce.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/join.h"

namespace halfgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a reduction is about: which dimensions, what shape comes out, and how many elements are reduced to
// one.
struct Extent {
  Shape dims, kept, shape;  // `kept`: the reduced dimensions have size 1; `shape`: as the caller asked for it
  std::int64_t count = 1;

  Extent(const Tensor& x, const Shape& wanted, bool keepdim, const char* op) {
    check(x.defined(), "{}: the operand is undefined", op);
    dims = normalize_dims(wanted, x.rank(), op);
    kept = reduced_shape(x.shape(), dims, true);
    shape = reduced_shape(x.shape(), dims, keepdim);
    for (std::int64_t d : dims) count *= x.shape()[static_cast<std::size_t>(d)];
  }
};

void check_float(const Tensor& x, const char* op) {
  check(!x.defined() || is_floating(x.dtype()), "{}: the tensor is {}; expected a float type, convert it with to(f32)",
        op, name_of(x.dtype()));
}

Tensor reduce(ReduceOp op, const Tensor& x, const Extent& extent, DType dtype, double scale = 1) {
  Tensor y = empty(extent.shape, dtype, x.device());
  View view = y.view_of_data();
  view.shape = extent.kept;
  view.strides = contiguous_strides(extent.kept);
  backend_for(x.device()).reduce(op, view, x.view_of_data(), scale);
  return y;
}

// Sums and products of integers have no natural bound but that of the widest type.
DType accumulated(DType t) { return is_floating(t) ? t : i64; }

// dy in the place of each element that was reduced to it.
Tensor spread(const Tensor& dy, const Extent& extent, const Shape& shape) {
  return dy.reshape(extent.kept).expand(shape);
}

// f(x), where f16 is computed in f32 throughout and rounded once at the end.
template <class F>
Tensor widened(const Tensor& x, F f) {
  return cast(f(cast(x, compute_dtype(x.dtype()))), x.dtype());
}

// y where it is not 0; the gradient of f is infinite at 0, but ours is 0 there. f(0) = 0.
template <class F>
Tensor except_at_zero(const Tensor& y, F f) {
  const Tensor zero = eq(y, 0);
  return where(zero, 0, f(where(zero, 1, y)));
}

Tensor extremum(ReduceOp op, const Tensor& x, const Shape& dims, bool keepdim, const char* name) {
  const Extent extent(x, dims, keepdim, name);
  check(extent.count > 0, "{}: shape {} has nothing to reduce; the {} of no elements is not defined", name, x.shape(),
        name);
  Tensor y = reduce(op, x, extent, x.dtype());
  return record(name, y, {x}, [x = Saved(x), extent, name](const Tensor& dy, const Tensor& y) {
    // Where x is the extremum; if that is NaN, where x is.
    const Tensor& input = x.get(name);
    const Tensor winners = logical_or(eq(input, y.detach().reshape(extent.kept)), isnan(input));
    const Tensor share = dy.reshape(extent.kept) / sum(winners, extent.dims, true);
    return Tensors{where(winners, share.expand(input.shape()), 0)};
  });
}

// For each element along the last dimension of x [m, n] the product of all others: the two of a pair swap
// places and are multiplied by the product of all other pairs. No division, so zeros do no harm.
Tensor products_of_others(const Tensor& x) {
  const std::int64_t m = x.size(0), n = x.size(1);
  if (n <= 1) return ones_like(x);
  if (n % 2 == 1) return products_of_others(cat({x, ones({m, 1}, x.dtype(), x.device())}, 1)).narrow(1, 0, n);
  const Tensor left = x.narrow(1, 0, n / 2), right = x.narrow(1, n / 2, n / 2);
  const Tensor others = products_of_others(left * right);
  return cat({others * right, others * left}, 1);
}

// The gradient of prod over `dims`: those go last, as one.
Tensor prod_gradient(const Tensor& dy, const Tensor& x, const Extent& extent) {
  Shape order;
  const auto reduced = [&](std::int64_t d) {
    return std::find(extent.dims.begin(), extent.dims.end(), d) != extent.dims.end();
  };
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (!reduced(d)) order.push_back(d);
  for (std::int64_t d : extent.dims) order.push_back(d);
  Shape back(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);

  const Tensor moved = x.permute(order);
  const Tensor others = products_of_others(moved.reshape({extent.kept.numel(), extent.count}));
  return spread(dy, extent, x.shape()) * others.reshape(moved.shape()).permute(back);
}

Tensor position(Extremum op, const Tensor& x, std::int64_t dim, bool keepdim, const char* name) {
  if (x.defined() && x.rank() == 0) return position(op, x.reshape({1}), dim, false, name);
  const Extent extent(x, {dim}, keepdim, name);
  check(extent.count > 0, "{}: dimension {} of shape {} is empty", name, extent.dims[0], x.shape());
  Tensor y = empty(extent.shape, i64, x.device());
  View view = y.view_of_data();
  view.shape = extent.kept;
  view.strides = contiguous_strides(extent.kept);
  backend_for(x.device()).arg_reduce(op, view, x.view_of_data(), static_cast<int>(extent.dims[0]));
  return y;
}

Tensor flattened(const Tensor& x, const char* op) {
  check(x.defined(), "{}: the operand is undefined", op);
  return x.detach().reshape({x.numel()});
}

Tensor running_sum(const Tensor& x, int dim, bool reverse) {
  Tensor y = empty(x.shape(), accumulated(x.dtype()), x.device());
  backend_for(x.device()).cumsum(y.view_of_data(), x.view_of_data(), dim, reverse);
  return record("cumsum", y, {x}, [dim, reverse](const Tensor& dy) { return Tensors{running_sum(dy, dim, !reverse)}; });
}

}  // namespace

Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  const Extent extent(x, dims, keepdim, "sum");
  return record("sum", reduce(ReduceOp::sum, x, extent, accumulated(x.dtype())), {x},
                [extent, shape = x.shape()](const Tensor& dy) { return Tensors{spread(dy, extent, shape)}; });
}

Tensor mean(const Tensor& x, const Shape& dims, bool keepdim) {
  check_float(x, "mean");
  const Extent extent(x, dims, keepdim, "mean");
  const double scale = 1 / static_cast<double>(extent.count);  // of nothing: 0 * infinity, NaN
  return record(
      "mean", reduce(ReduceOp::sum, x, extent, x.dtype(), scale), {x},
      [extent, scale, shape = x.shape()](const Tensor& dy) { return Tensors{spread(dy * scale, extent, shape)}; });
}

Tensor prod(const Tensor& x, const Shape& dims, bool keepdim) {
  const Extent extent(x, dims, keepdim, "prod");
  return record("prod", reduce(ReduceOp::prod, x, extent, accumulated(x.dtype())), {x},
                [extent, x = Saved(x)](const Tensor& dy) {
                  const Tensor& input = x.get("prod");
                  const DType compute = compute_dtype(input.dtype());
                  const Tensor dx = prod_gradient(cast(dy, compute), cast(input, compute), extent);
                  return Tensors{cast(dx, input.dtype())};
                });
}

Tensor max(const Tensor& x, const Shape& dims, bool keepdim) {
  return extremum(ReduceOp::max, x, dims, keepdim, "max");
}
Tensor min(const Tensor& x, const Shape& dims, bool keepdim) {
  return extremum(ReduceOp::min, x, dims, keepdim, "min");
}

Tensor var(const Tensor& x, const Shape& dims, bool keepdim, double correction) {
  check_float(x, "var");
  const Extent extent(x, dims, keepdim, "var");
  return widened(x, [&](const Tensor& v) {
    const Tensor distance = v - mean(v, extent.dims, true);
    return sum(square(distance), extent.dims, keepdim) / std::fmax(0, static_cast<double>(extent.count) - correction);
  });
}

Tensor stddev(const Tensor& x, const Shape& dims, bool keepdim, double correction) {
  check_float(x, "stddev");
  const Extent extent(x, dims, keepdim, "stddev");
  return widened(x, [&](const Tensor& v) {
    return except_at_zero(var(v, extent.dims, keepdim, correction), [](const Tensor& y) { return sqrt(y); });
  });
}

Tensor norm(const Tensor& x, double p, const Shape& dims, bool keepdim) {
  check_float(x, "norm");
  check(!std::isnan(p), "norm: p is NaN; expected a number, for example 2");
  const Extent extent(x, dims, keepdim, "norm");
  return widened(x, [&](const Tensor& v) -> Tensor {
    if (p == 2) return except_at_zero(sum(square(v), dims, keepdim), [](const Tensor& y) { return sqrt(y); });
    if (p == 1) return sum(abs(v), dims, keepdim);
    if (p == kInfinity) return max(abs(v), dims, keepdim);
    if (p == -kInfinity) return min(abs(v), dims, keepdim);
    if (p == 0) return sum(cast(ne(v, 0), v.dtype()), dims, keepdim);
    const auto power = [](double exponent) { return [=](const Tensor& y) { return pow(y, exponent); }; };
    if (p < 0) return power(1 / p)(sum(power(p)(abs(v)), dims, keepdim));
    return except_at_zero(sum(except_at_zero(abs(v), power(p)), dims, keepdim), power(1 / p));
  });
}

Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim) {
  check_float(x, "logsumexp");
  const Extent extent(x, dims, keepdim, "logsumexp");
  return widened(x, [&](const Tensor& v) {
    Tensor y;
    {
      // The largest is taken out, so that nothing overflows: log sum e^x = m + log sum e^(x - m). An infinite
      // m stays in.
      NoGrad guard;
      Tensor most = extent.count > 0 ? max(v, extent.dims, true) : zeros(extent.kept, v.dtype(), v.device());
      most = where(isinf(most), 0, most);
      y = (log(sum(exp(v - most), extent.dims, true)) + most).reshape(extent.shape);
    }
    return record("logsumexp", y, {v}, [extent, x = Saved(v)](const Tensor& dy, const Tensor& y) {
      // softmax(x) dy, and 0 where all x are -infinity
      const Tensor finite = where(eq(y, -kInfinity), 0, y);
      const Tensor& input = x.get("logsumexp");
      return Tensors{spread(dy, extent, input.shape()) * exp(input - finite.reshape(extent.kept))};
    });
  });
}

Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim) {
  return position(Extremum::max, x, dim, keepdim, "argmax");
}
Tensor argmin(const Tensor& x, std::int64_t dim, bool keepdim) {
  return position(Extremum::min, x, dim, keepdim, "argmin");
}
Tensor argmax(const Tensor& x) { return position(Extremum::max, flattened(x, "argmax"), 0, false, "argmax"); }
Tensor argmin(const Tensor& x) { return position(Extremum::min, flattened(x, "argmin"), 0, false, "argmin"); }

Tensor cumsum(const Tensor& x, std::int64_t dim) {
  check(x.defined(), "cumsum: the operand is undefined");
  if (x.rank() == 0) return cumsum(x.reshape({1}), dim).reshape({});
  return running_sum(x, normalize_dim(dim, x.rank(), "cumsum"), false);
}

Tensor any(const Tensor& x, const Shape& dims, bool keepdim) {
  return reduce(ReduceOp::any, x, Extent(x, dims, keepdim, "any"), boolean);
}
Tensor all(const Tensor& x, const Shape& dims, bool keepdim) {
  return reduce(ReduceOp::all, x, Extent(x, dims, keepdim, "all"), boolean);
}

}  // namespace halfgrad
