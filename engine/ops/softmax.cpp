#include "engine/ops/softmax.h"

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace halfgrad {
namespace {

// softmax: dx = y (dy - sum(dy y));  log_softmax: dx = dy - e^y sum(dy)
Tensor gradient(const Tensor& dy, const Tensor& y, int dim, bool log) {
  if (!grad_enabled()) {
    Tensor dx = empty_like(y);
    backend_for(y.device()).softmax_backward(dx.view_of_data(), dy.view_of_data(), y.view_of_data(), dim, log);
    return dx;
  }
  const DType compute = compute_dtype(y.dtype());
  const Tensor d = cast(dy, compute), s = cast(y, compute);
  const Tensor dx = log ? d - exp(s) * sum(d, {dim}, true) : s * (d - sum(d * s, {dim}, true));
  return cast(dx, y.dtype());
}

Tensor along(const Tensor& x, std::int64_t dim, bool log, const char* name) {
  check(x.defined(), "{}: the operand is undefined", name);
  check(is_floating(x.dtype()), "{}: the tensor is {}; expected a float type, convert it with to(f32)", name,
        name_of(x.dtype()));
  if (x.rank() == 0) return along(x.reshape({1}), dim, log, name).reshape({});
  const int d = normalize_dim(dim, x.rank(), name);
  Tensor y = empty_like(x);
  backend_for(x.device()).softmax(y.view_of_data(), x.view_of_data(), d, log);
  return record(name, y, {x}, [d, log](const Tensor& dy, const Tensor& y) { return Tensors{gradient(dy, y, d, log)}; });
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim) { return along(x, dim, false, "softmax"); }
Tensor log_softmax(const Tensor& x, std::int64_t dim) { return along(x, dim, true, "log_softmax"); }

}  // namespace halfgrad
