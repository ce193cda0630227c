#include "engine/ops/elementwise.h"

#include <algorithm>

#include "engine/autograd.h"
#include "engine/ops/checks.h"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad {

using detail::view_as;
using elementwise::BinaryUses;
using elementwise::Types;
using elementwise::Uses;

namespace {

// --- dtypes ----------------------------------------------------------------------------------------------------------

int kind_of(DType t) { return is_floating(t) ? 2 : t == boolean ? 0 : 1; }

// Numbers without a dtype of their own rank below rank-0 tensors, and those below all others: the lower raises the
// dtype only when it is of a higher kind (bool, integer, float). As in PyTorch.
struct DTypeOfOperands {
  std::optional<DType> by_rank[3];  // tensors, rank-0 tensors, literals

  void add(const Tensor& x) {
    auto& slot = by_rank[x.is_literal() ? 2 : x.rank() == 0 ? 1 : 0];
    const DType t = x.is_literal() && x.dtype() == f64 ? f32 : x.dtype();
    slot = slot ? promote(*slot, t) : t;
  }
  DType result() const {
    std::optional<DType> t;
    for (const auto& slot : by_rank)
      if (slot && (!t || kind_of(*slot) > kind_of(*t))) t = t ? promote(*t, *slot) : *slot;
    return *t;
  }
};

DType common_dtype(const Tensor& a, const Tensor& b) {
  DTypeOfOperands dtypes;
  dtypes.add(a);
  dtypes.add(b);
  return dtypes.result();
}

Device common_device(const Tensor& a, const Tensor& b, const char* op) {
  if (a.is_literal()) return b.device();
  if (b.is_literal()) return a.device();
  check(a.device() == b.device(), "{}: one operand is on {}, the other on {}; move one with to(Device)", op, a.device(),
        b.device());
  return a.device();
}

void check_defined(const Tensor& x, const char* op) { check(x.defined(), "{}: an operand is undefined", op); }

// --- layout ----------------------------------------------------------------------------------------------------------

// A new tensor in the memory order of the first operand that has its shape, so that channels-last stays channels-last.
Tensor empty_in_order_of(const Shape& shape, DType dtype, Device device,
                         std::initializer_list<const Tensor*> operands) {
  for (const Tensor* x : operands)
    if (x->shape() == shape && is_dense(shape, x->strides())) return empty_strided(shape, x->strides(), dtype, device);
  return empty(shape, dtype, device);
}

// --- one operand -----------------------------------------------------------------------------------------------------

// The constants of an op as the seam takes them.
template <class Op>
struct Params {
  double values[2] = {0, 0};
  explicit Params(const Op& op) {
    static_assert(std::is_empty_v<Op> || sizeof(Op) <= sizeof(values));
    if constexpr (!std::is_empty_v<Op>)
      std::copy_n(reinterpret_cast<const double*>(&op), sizeof(Op) / sizeof(double), values);
  }
};

template <class Op>
Tensor unary_backward(const Op& op, const Tensor& dy, const Tensor& x, const Tensor& y) {
  if (grad_enabled() || Op::uses == Uses::nothing) return op.backward(dy, x, y);
  const Tensor& read = x.defined() ? x : y;
  Tensor dx = empty_in_order_of(dy.shape(), read.dtype(), dy.device(), {&read, &dy});
  if (dx.numel() > 0)
    backend_for(dy.device())
        .unary_backward(elementwise::UnaryOps::position<Op>(), Params(op).values, dx.view_of_data(), dy.view_of_data(),
                        x.view_of_data(), y.view_of_data());
  return dx;
}

template <class Op>
Tensor unary(const Tensor& x, const Op& op = {}) {
  check_defined(x, Op::name);
  const bool to_float = Op::types == Types::floats && !is_floating(x.dtype());
  const DType dtype = Op::types == Types::predicate ? boolean : to_float ? f32 : x.dtype();
  const DType compute = Op::types == Types::predicate ? compute_dtype(x.dtype()) : compute_dtype(dtype);
  Tensor y = empty_in_order_of(x.shape(), dtype, x.device(), {&x});
  if (y.numel() > 0)
    backend_for(x.device())
        .unary(elementwise::UnaryOps::position<Op>(), Params(op).values, compute, y.view_of_data(), x.view_of_data());
  if constexpr (Op::types == Types::predicate) {
    return y;
  } else if constexpr (Op::uses == Uses::output) {
    return record(Op::name, y, {x},
                  [op](const Tensor& dy, const Tensor& y) { return Tensors{unary_backward(op, dy, {}, y)}; });
  } else if constexpr (Op::uses == Uses::input) {
    return record(Op::name, y, {x}, [op, x = Saved(x)](const Tensor& dy) {
      return Tensors{unary_backward(op, dy, x.get(Op::name), {})};
    });
  } else {
    return record(Op::name, y, {x}, [op](const Tensor& dy) { return Tensors{unary_backward(op, dy, {}, {})}; });
  }
}

// --- two operands ----------------------------------------------------------------------------------------------------

// The gradient of an operand from that in the output's shape: summed where the operand was broadcast, in its own dtype.
Tensor to_operand(const Tensor& gradient, const Shape& shape, DType dtype) {
  return cast(sum_to_shape(gradient, shape), dtype);
}

template <class Op>
struct BinaryGradient {
  Shape shape_a, shape_b;
  DType dtype_a, dtype_b;
  bool need_a, need_b;

  BinaryGradient(const Tensor& a, const Tensor& b)
      : shape_a(a.shape()),
        shape_b(b.shape()),
        dtype_a(a.dtype()),
        dtype_b(b.dtype()),
        need_a(needs_grad(a)),
        need_b(needs_grad(b)) {}

  Tensors operator()(const Tensor& dy, const Tensor& a, const Tensor& b, const Tensor& y) const {
    Tensor da, db;
    if (grad_enabled() || Op::uses == BinaryUses::nothing) {
      if (need_a) da = Op::backward_a(dy, a, b, y);
      if (need_b) db = Op::backward_b(dy, a, b, y);
    } else {
      // An operand that was not broadcast gets its gradient in its own dtype at once.
      if (need_a)
        da = empty_in_order_of(dy.shape(), shape_a == dy.shape() ? dtype_a : dy.dtype(), dy.device(), {&a, &dy});
      if (need_b)
        db = empty_in_order_of(dy.shape(), shape_b == dy.shape() ? dtype_b : dy.dtype(), dy.device(), {&b, &dy});
      if (dy.numel() > 0)
        backend_for(dy.device())
            .binary_backward(elementwise::BinaryOps::position<Op>(), da.view_of_data(), db.view_of_data(),
                             dy.view_of_data(), view_as(a, dy.shape()), view_as(b, dy.shape()), y.view_of_data());
    }
    return {need_a ? to_operand(da, shape_a, dtype_a) : Tensor(), need_b ? to_operand(db, shape_b, dtype_b) : Tensor()};
  }
};

template <class Op>
Tensor binary(const Tensor& a, const Tensor& b) {
  check_defined(a, Op::name);
  check_defined(b, Op::name);
  const Device device = common_device(a, b, Op::name);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), Op::name);
  // Two numbers give a number again, as precise as they are: the exponent - 1 in the gradient of pow(x, exponent).
  const bool numbers = a.is_literal() && b.is_literal();
  DType dtype = numbers ? promote(a.dtype(), b.dtype()) : common_dtype(a, b);
  if (Op::types == Types::floats && !is_floating(dtype)) dtype = numbers ? f64 : f32;
  const DType compute = compute_dtype(dtype);
  if (Op::types == Types::predicate) dtype = boolean;
  Tensor y = empty_in_order_of(shape, dtype, device, {&a, &b});
  y.impl()->literal = numbers;
  if (y.numel() > 0)
    backend_for(device).binary(elementwise::BinaryOps::position<Op>(), compute, y.view_of_data(), view_as(a, shape),
                               view_as(b, shape));
  if constexpr (Op::types == Types::predicate) {
    return y;
  } else if constexpr (Op::uses == BinaryUses::nothing) {
    return record(Op::name, y, {a, b},
                  [gradient = BinaryGradient<Op>(a, b)](const Tensor& dy) { return gradient(dy, {}, {}, {}); });
  } else if constexpr (Op::uses == BinaryUses::inputs) {
    return record(Op::name, y, {a, b},
                  [gradient = BinaryGradient<Op>(a, b), a = Saved(a), b = Saved(b)](const Tensor& dy) {
                    return gradient(dy, a.get(Op::name), b.get(Op::name), {});
                  });
  } else {
    return record(Op::name, y, {a, b},
                  [gradient = BinaryGradient<Op>(a, b), a = Saved(a), b = Saved(b)](const Tensor& dy, const Tensor& y) {
                    return gradient(dy, a.get(Op::name), b.get(Op::name), y);
                  });
  }
}

// x op= other, computed in the type that both promote to and rounded once into x.
template <class Op>
void in_place(Tensor& x, const Tensor& other, const char* name) {
  check_in_place(x, name);
  check_defined(other, name);
  NoGrad guard;
  const DType dtype = common_dtype(x, other);
  const bool floats = Op::types == Types::floats || is_floating(dtype);
  check(is_floating(x.dtype()) || !floats,
        "{}: the result is a fraction, but the tensor is {}; use the op that returns a new tensor", name,
        name_of(x.dtype()));
  check(broadcast_shapes(x.shape(), other.shape(), name) == x.shape(),
        "{}: a tensor of shape {} does not broadcast to shape {}", name, other.shape(), x.shape());
  const Device device = common_device(x, other, name);
  check(x.device() == device, "{}: the tensor is on {}, the operand on {}; move one with to(Device)", name, x.device(),
        device);
  const bool same = other.raw_data() == x.raw_data() && other.strides() == x.strides() && other.shape() == x.shape();
  const Tensor operand = x.shares_storage(other) && !same ? other.clone() : other;
  x.impl()->storage->bump_version();
  if (x.numel() > 0)
    backend_for(x.device())
        .binary(elementwise::BinaryOps::position<Op>(), compute_dtype(dtype), x.view_of_data(), x.view_of_data(),
                view_as(operand, x.shape()));
}

}  // namespace

Tensor neg(const Tensor& x) {
  check(!x.defined() || x.dtype() != boolean, "neg: the tensor is bool; use logical_not");
  return unary<elementwise::Neg>(x);
}
Tensor abs(const Tensor& x) { return unary<elementwise::Abs>(x); }
Tensor sign(const Tensor& x) { return unary<elementwise::Sign>(x); }
Tensor floor(const Tensor& x) { return unary<elementwise::Floor>(x); }
Tensor ceil(const Tensor& x) { return unary<elementwise::Ceil>(x); }
Tensor round(const Tensor& x) { return unary<elementwise::Round>(x); }
Tensor reciprocal(const Tensor& x) { return unary<elementwise::Reciprocal>(x); }
Tensor square(const Tensor& x) { return unary<elementwise::Square>(x); }
Tensor exp(const Tensor& x) { return unary<elementwise::Exp>(x); }
Tensor expm1(const Tensor& x) { return unary<elementwise::Expm1>(x); }
Tensor log(const Tensor& x) { return unary<elementwise::Log>(x); }
Tensor log1p(const Tensor& x) { return unary<elementwise::Log1p>(x); }
Tensor sqrt(const Tensor& x) { return unary<elementwise::Sqrt>(x); }
Tensor rsqrt(const Tensor& x) { return unary<elementwise::Rsqrt>(x); }
Tensor sin(const Tensor& x) { return unary<elementwise::Sin>(x); }
Tensor cos(const Tensor& x) { return unary<elementwise::Cos>(x); }
Tensor tanh(const Tensor& x) { return unary<elementwise::Tanh>(x); }
Tensor sigmoid(const Tensor& x) { return unary<elementwise::Sigmoid>(x); }
Tensor relu(const Tensor& x) { return unary<elementwise::Relu>(x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) { return unary(x, elementwise::LeakyRelu{negative_slope}); }
Tensor gelu(const Tensor& x) { return unary<elementwise::Gelu>(x); }
Tensor silu(const Tensor& x) { return unary<elementwise::Silu>(x); }
Tensor elu(const Tensor& x, double alpha) { return unary(x, elementwise::Elu{alpha}); }
Tensor softplus(const Tensor& x, double beta) {
  check(beta > 0, "softplus: beta is {}; expected a positive number", beta);
  return unary(x, elementwise::Softplus{beta});
}
Tensor erf(const Tensor& x) { return unary<elementwise::Erf>(x); }
Tensor erfc(const Tensor& x) { return unary<elementwise::Erfc>(x); }
Tensor clamp(const Tensor& x, double min, double max) { return unary(x, elementwise::Clamp{min, max}); }
Tensor logical_not(const Tensor& x) { return unary<elementwise::LogicalNot>(x); }
Tensor isnan(const Tensor& x) { return unary<elementwise::IsNan>(x); }
Tensor isinf(const Tensor& x) { return unary<elementwise::IsInf>(x); }
Tensor isfinite(const Tensor& x) { return unary<elementwise::IsFinite>(x); }

Tensor add(const Tensor& a, const Tensor& b) { return binary<elementwise::Add>(a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary<elementwise::Sub>(a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary<elementwise::Mul>(a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<elementwise::Div>(a, b); }
Tensor pow(const Tensor& base, const Tensor& exponent) { return binary<elementwise::Pow>(base, exponent); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary<elementwise::Maximum>(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary<elementwise::Minimum>(a, b); }
Tensor eq(const Tensor& a, const Tensor& b) { return binary<elementwise::Eq>(a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return binary<elementwise::Ne>(a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return binary<elementwise::Lt>(a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return binary<elementwise::Le>(a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return binary<elementwise::Gt>(a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return binary<elementwise::Ge>(a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return binary<elementwise::LogicalAnd>(a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return binary<elementwise::LogicalOr>(a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return binary<elementwise::LogicalXor>(a, b); }

namespace detail {

void add_in_place(Tensor& x, const Tensor& other, double alpha) {
  if (alpha == 1) return in_place<elementwise::Add>(x, other, "add_");
  check_in_place(x, "add_");
  NoGrad guard;
  // The product stays in the type that the sum is computed in, so that f16 is rounded once.
  in_place<elementwise::Add>(x, mul(cast(other, compute_dtype(other.dtype())), alpha), "add_");
}
void multiply_in_place(Tensor& x, const Tensor& other) { in_place<elementwise::Mul>(x, other, "mul_"); }
void divide_in_place(Tensor& x, const Tensor& other) { in_place<elementwise::Div>(x, other, "div_"); }

Tensor relu_gradient(const Tensor& dy, const Tensor& y) { return unary_backward(elementwise::Relu(), dy, {}, y); }

}  // namespace detail

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined(condition, "where");
  check_defined(a, "where");
  check_defined(b, "where");
  check(condition.dtype() == boolean, "where: the condition is {}; expected bool (compare it, for example with != 0)",
        name_of(condition.dtype()));
  common_device(a, b, "where");
  const Device device = common_device(condition, a.is_literal() ? b : a, "where");
  const Shape shape = broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  const DType dtype = common_dtype(a, b);
  Tensor y = empty_in_order_of(shape, dtype, device, {&a, &b, &condition});
  if (y.numel() > 0)
    backend_for(device).select(y.view_of_data(), view_as(condition, shape), view_as(a, shape), view_as(b, shape));
  return record("where", y, {a, b},
                [condition = Saved(condition), shape_a = a.shape(), shape_b = b.shape(), dtype_a = a.dtype(),
                 dtype_b = b.dtype(), need_a = needs_grad(a), need_b = needs_grad(b)](const Tensor& dy) {
                  const Tensor& c = condition.get("where");
                  return Tensors{need_a ? to_operand(where(c, dy, 0), shape_a, dtype_a) : Tensor(),
                                 need_b ? to_operand(where(c, 0, dy), shape_b, dtype_b) : Tensor()};
                });
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined(x, "cast");
  if (x.dtype() == dtype) return x;
  Tensor y = empty_in_order_of(x.shape(), dtype, x.device(), {&x});
  if (y.numel() > 0) backend_for(x.device()).copy(y.view_of_data(), x.view_of_data());
  if (!is_floating(dtype)) return y;
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& dy) { return Tensors{cast(dy, from)}; });
}

}  // namespace halfgrad
