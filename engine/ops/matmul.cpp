#include "engine/ops/matmul.h"

#include <utility>

#include "engine/autograd.h"
#include "engine/backend.h"
#include "engine/ops/activated.h"
#include "engine/ops/checks.h"

namespace halfgrad {
namespace {

Shape batch_of(const Tensor& x) { return Shape(x.shape().data(), x.shape().size() - 2); }

Shape with_matrix(Shape batch, std::int64_t rows, std::int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

Tensor expand_batch(const Tensor& x, const Shape& batch) {
  return x.expand(with_matrix(batch, x.size(-2), x.size(-1)));
}

// A matrix as a batch of one, as the seam wants it.
View batch_of_one(View matrix) {
  matrix.shape.insert(0, 1);
  matrix.strides.insert(0, 0);
  return matrix;
}

// Merges dimension `at` into the one behind it, where memory allows.
bool mergeable(const View& v, std::size_t at) {
  return v.shape[at] == 1 || v.shape[at + 1] == 1 || v.strides[at] == v.shape[at + 1] * v.strides[at + 1];
}
void merge(View& v, std::size_t at) {
  v.strides.erase(v.shape[at + 1] == 1 ? at + 1 : at);
  v.shape[at + 1] *= v.shape[at];
  v.shape.erase(at);
}

// c = a x b for views [batch..., rows, cols] with equal batches, which may be strided or expanded in any way.
// The seam multiplies one dimension of batches; others that cannot be merged into it are walked here.
void multiply(Backend& backend, View c, View a, View b) {
  // One matrix b for the whole batch, and the rows of all a below each other: a single, larger product.
  while (c.shape.size() > 2) {
    const std::size_t last = c.shape.size() - 3;
    const bool one_b = c.shape[last] == 1 || b.strides[last] == 0;
    if (!one_b || !mergeable(a, last) || !mergeable(c, last)) break;
    merge(a, last);
    merge(c, last);
    b.shape.erase(last);
    b.strides.erase(last);
  }
  for (std::size_t at = 0; at + 3 < c.shape.size();) {
    if (mergeable(a, at) && mergeable(b, at) && mergeable(c, at)) {
      for (View* v : {&a, &b, &c}) merge(*v, at);
    } else {
      ++at;
    }
  }
  if (c.shape.size() <= 3) {
    if (c.shape.size() == 2)
      return backend.gemm(batch_of_one(std::move(c)), batch_of_one(std::move(a)), batch_of_one(std::move(b)), View{},
                          Activation::none);
    return backend.gemm(c, a, b, View{}, Activation::none);
  }
  const std::int64_t count = c.shape[0];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto nth = [i](const View& v) {
      const std::int64_t bytes = i * v.strides[0] * static_cast<std::int64_t>(size_of(v.dtype));
      return View{static_cast<char*>(v.data) + bytes, v.dtype, Shape(v.shape.data() + 1, v.shape.size() - 1),
                  Strides(v.strides.data() + 1, v.strides.size() - 1), v.device};
    };
    multiply(backend, nth(c), nth(a), nth(b));
  }
}

// The gradient of an operand with the batch `batch`: left x right, summed over the dimensions along which
// that operand was broadcast. They become part of the contracted dimension: the sum happens inside the
// product, in f32, and an f16 gradient is rounded once.
Tensor product_summed_to(const Shape& batch, const Tensor& left, const Tensor& right) {
  const Shape full = batch_of(left);
  if (full == batch) return matmul(left, right);
  const std::size_t missing = full.size() - batch.size();
  Shape kept, kept_sizes, summed;
  std::int64_t depth = left.size(-1);
  for (std::size_t i = 0; i < full.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    if (i < missing || batch[i - missing] != full[i]) {
      summed.push_back(dim);
      depth *= full[i];
    } else {
      kept.push_back(dim);
      kept_sizes.push_back(full[i]);
    }
  }
  const std::int64_t rows = left.rank() - 2, cols = left.rank() - 1;
  Shape left_order = kept, right_order = kept;
  left_order.push_back(rows);
  for (std::int64_t d : summed) {
    left_order.push_back(d);
    right_order.push_back(d);
  }
  left_order.push_back(cols);
  right_order.push_back(rows);
  right_order.push_back(cols);
  const Tensor product = matmul(left.permute(left_order).reshape(with_matrix(kept_sizes, left.size(-2), depth)),
                                right.permute(right_order).reshape(with_matrix(kept_sizes, depth, right.size(-1))));
  return product.reshape(with_matrix(batch, left.size(-2), right.size(-1)));
}

// a [..., M, K], b [..., K, N] -> [..., M, N]
Tensor multiply_matrices(const Tensor& a, const Tensor& b) {
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  const Tensor y = empty(with_matrix(batch, a.size(-2), b.size(-1)), a.dtype(), a.device());
  if (y.numel() > 0)
    multiply(backend_for(a.device()), y.view_of_data(), detail::view_as(a, with_matrix(batch, a.size(-2), a.size(-1))),
             detail::view_as(b, with_matrix(batch, b.size(-2), b.size(-1))));
  // The gradient of each operand needs the other one.
  const bool da = needs_grad(a), db = needs_grad(b);
  return record("matmul", y, {a, b},
                [a = Saved(db ? a : Tensor()), b = Saved(da ? b : Tensor()), da, db, a_batch = batch_of(a),
                 b_batch = batch_of(b), batch](const Tensor& dy) {
                  const auto transposed = [&](const Saved& x) {
                    return expand_batch(x.get("matmul"), batch).transpose(-1, -2);
                  };
                  return Tensors{da ? product_summed_to(a_batch, dy, transposed(b)) : Tensor(),
                                 db ? product_summed_to(b_batch, transposed(a), dy) : Tensor()};
                });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  detail::require_float("matmul", "a", a);
  detail::require_same("matmul", "a", a, "b", b);
  check(a.rank() >= 1 && b.rank() >= 1,
        "matmul: a is {} and b is {}; expected at least one dimension each: multiply by a number with *", a.shape(),
        b.shape());
  const std::int64_t b_rows = b.size(b.rank() == 1 ? 0 : -2);
  check(a.size(-1) == b_rows,
        "matmul: a is {} and b is {}; the last dimension of a ({}) must equal the {} dimension of b ({}): "
        "transpose or reshape one of them",
        a.shape(), b.shape(), a.size(-1), b.rank() == 1 ? "only" : "second to last", b_rows);
  Tensor y = multiply_matrices(a.rank() == 1 ? a.unsqueeze(0) : a, b.rank() == 1 ? b.unsqueeze(1) : b);
  if (b.rank() == 1) y = y.squeeze(-1);
  return a.rank() == 1 ? y.squeeze(b.rank() == 1 ? -1 : -2) : y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  detail::require_float("linear", "x", x);
  detail::require_same("linear", "x", x, "weight", weight);
  check(weight.rank() == 2, "linear: weight is {}, expected [out, in]", weight.shape());
  const std::int64_t out = weight.size(0), in = weight.size(1);
  check(x.rank() >= 1 && x.size(-1) == in,
        "linear: x is {} and weight is {}; the last dimension of x must equal the second of weight ({})", x.shape(),
        weight.shape(), in);
  if (bias.defined()) {
    detail::require_same("linear", "x", x, "bias", bias);
    check(bias.shape() == Shape{out}, "linear: bias is {}, expected [{}], one number per row of weight {}",
          bias.shape(), out, weight.shape());
  }
  Shape shape = x.shape();
  shape[shape.size() - 1] = 1;
  const std::int64_t rows = shape.numel();
  shape[shape.size() - 1] = out;

  const Tensor flat = x.reshape({rows, in});
  const Tensor y = empty({rows, out}, x.dtype(), x.device());
  View transposed = weight.view_of_data();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  if (y.numel() > 0)
    backend_for(x.device())
        .gemm(batch_of_one(y.view_of_data()), batch_of_one(flat.view_of_data()), batch_of_one(std::move(transposed)),
              bias.defined() ? bias.view_of_data() : View{}, activation);
  const bool dx = needs_grad(flat), dw = needs_grad(weight), db = needs_grad(bias);
  auto gradient = [x = Saved(dw ? flat : Tensor()), w = Saved(dx ? weight : Tensor()), dx, dw, db](const Tensor& dy) {
    return Tensors{dx ? matmul(dy, w.get("linear")) : Tensor(), dw ? matmul(dy.t(), x.get("linear")) : Tensor(),
                   db ? sum_to_shape(dy, {dy.size(1)}) : Tensor()};
  };
  return detail::record_activated("linear", y, {flat, weight, bias}, std::move(gradient), activation).reshape(shape);
}

}  // namespace halfgrad
