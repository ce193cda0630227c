#include "engine/ops/index.h"

#include <algorithm>

#include "engine/autograd.h"
#include "engine/backend.h"
#include "engine/ops/checks.h"
#include "engine/ops/elementwise.h"

namespace halfgrad {
namespace {

// `index` as the seam wants it: i64, each value in [0, size).
Tensor checked_index(const char* op, const Tensor& index, std::int64_t size) {
  check(index.defined(), "{}: index is undefined, expected a tensor of i32 or i64", op);
  check(index.dtype() == i32 || index.dtype() == i64, "{}: index is {}, expected i32 or i64: convert it, index.to(i64)",
        op, name_of(index.dtype()));
  const Tensor checked = empty(index.shape(), i64, index.device());
  if (index.numel() > 0)
    backend_for(index.device()).check_index(op, checked.view_of_data(), index.view_of_data(), size);
  return checked;
}

void check_same_device(const char* op, const Tensor& x, const Tensor& index) {
  check(!index.defined() || x.device() == index.device(),
        "{}: x and index are on different devices: move one of them with .to(device)", op);
}

int checked_dim(const char* op, const Tensor& x, std::int64_t dim) {
  check(x.defined(), "{}: x is undefined, expected a tensor", op);
  check(x.rank() >= 1, "{}: x is a number (rank 0), expected at least one dimension", op);
  return normalize_dim(dim, x.rank(), op);
}

void check_vector(const char* op, const Tensor& index) {
  check(index.defined() && index.rank() == 1, "{}: index is {}, expected a vector: flatten() it", op, index);
}

// A copy of x to which `add(sums, src)` adds; f16 sums are made in f32 and rounded once.
template <class F>
Tensor add_into_copy(const char* op, const Tensor& x, const Tensor& src, F add) {
  check(x.dtype() != boolean, "{}: x is bool, expected numbers: convert it, x.to(i64)", op);
  const DType dtype = x.dtype() == f16 ? f32 : x.dtype();
  const Tensor sums = empty(x.shape(), dtype, x.device());
  if (x.numel() > 0) backend_for(x.device()).copy(sums.view_of_data(), x.view_of_data());
  if (src.numel() > 0) add(sums.view_of_data(), src.detach().to(dtype).view_of_data());
  return sums.to(x.dtype());
}

// Zeros to start a gradient from, one number in memory.
Tensor zero_like(const Tensor& dy, const Shape& shape) { return zeros({}, dy.dtype(), dy.device()).expand(shape); }

Tensor select_as(const char* op, const Tensor& x, std::int64_t dim, const Tensor& index) {
  const int d = checked_dim(op, x, dim);
  check_vector(op, index);
  check_same_device(op, x, index);
  const Tensor at = checked_index(op, index, x.shape()[static_cast<std::size_t>(d)]);
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(d)] = at.numel();
  const Tensor y = detail::empty_in_layout(detail::prefers_channels_last(x), shape, x.dtype(), x.device());
  if (y.numel() > 0) backend_for(x.device()).index_select(y.view_of_data(), x.view_of_data(), at.view_of_data(), d);
  return record(op, y, {x}, [op, at = Saved(at), d, shape = x.shape()](const Tensor& dy) {
    return Tensors{index_add(zero_like(dy, shape), d, at.get(op), dy)};
  });
}

}  // namespace

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const int d = checked_dim("gather", x, dim);
  check_same_device("gather", x, index);
  const Tensor at = checked_index("gather", index, x.shape()[static_cast<std::size_t>(d)]);
  bool fits = at.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == d || at.size(i) <= x.size(i);
  check(fits, "gather: index is {} and x is {}; expected the same rank and no larger size except along dim {}",
        at.shape(), x.shape(), d);
  const Tensor y = empty(at.shape(), x.dtype(), x.device());
  if (y.numel() > 0) backend_for(x.device()).gather(y.view_of_data(), x.view_of_data(), at.view_of_data(), d);
  return record("gather", y, {x}, [at = Saved(at), d, shape = x.shape()](const Tensor& dy) {
    return Tensors{scatter_add(zero_like(dy, shape), d, at.get("gather"), dy)};
  });
}

Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src) {
  const int d = checked_dim("scatter_add", x, dim);
  detail::require_same("scatter_add", "x", x, "src", src);
  check_same_device("scatter_add", x, index);
  const Tensor at = checked_index("scatter_add", index, x.shape()[static_cast<std::size_t>(d)]);
  bool fits = at.rank() == x.rank() && at.shape() == src.shape();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == d || at.size(i) <= x.size(i);
  check(fits,
        "scatter_add: index is {}, src is {} and x is {}; expected src like index, of x's rank and no larger "
        "than x "
        "except along dim {}",
        at.shape(), src.shape(), x.shape(), d);
  const Tensor y = add_into_copy("scatter_add", x, src, [&](const View& sums, const View& values) {
    backend_for(x.device()).scatter_add(sums, at.view_of_data(), values, d);
  });
  return record("scatter_add", y, {x, src},
                [at = Saved(at), d, dx = needs_grad(x), dsrc = needs_grad(src)](const Tensor& dy) {
                  return Tensors{dx ? dy : Tensor(), dsrc ? gather(dy, d, at.get("scatter_add")) : Tensor()};
                });
}

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  return select_as("index_select", x, dim, index);
}

Tensor index_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src) {
  const int d = checked_dim("index_add", x, dim);
  detail::require_same("index_add", "x", x, "src", src);
  check_vector("index_add", index);
  check_same_device("index_add", x, index);
  const Tensor at = checked_index("index_add", index, x.shape()[static_cast<std::size_t>(d)]);
  Shape expected = x.shape();
  expected[static_cast<std::size_t>(d)] = at.numel();
  check(src.shape() == expected, "index_add: src is {}, expected {}: x's shape, with index's length along dim {}",
        src.shape(), expected, d);
  const Tensor y = add_into_copy("index_add", x, src, [&](const View& sums, const View& values) {
    backend_for(x.device()).index_add(sums, at.view_of_data(), values, d);
  });
  return record("index_add", y, {x, src},
                [at = Saved(at), d, dx = needs_grad(x), dsrc = needs_grad(src)](const Tensor& dy) {
                  return Tensors{dx ? dy : Tensor(), dsrc ? index_select(dy, d, at.get("index_add")) : Tensor()};
                });
}

Tensor embedding(const Tensor& indices, const Tensor& weight, std::int64_t padding_idx) {
  check(indices.defined() && weight.defined() && weight.rank() == 2,
        "embedding: weight is {}, expected [V, D], and indices must be defined", weight);
  check(padding_idx >= -1 && padding_idx < weight.size(0),
        "embedding: padding_idx is {}, expected [0, {}), or -1 for none", padding_idx, weight.size(0));
  const Tensor flat = indices.flatten();
  Tensor rows = select_as("embedding", weight, 0, flat);
  if (padding_idx >= 0) rows = where(eq(flat, padding_idx).unsqueeze(1), rows.detach(), rows);
  Shape shape = indices.shape();
  shape.push_back(weight.size(1));
  return rows.reshape(shape);
}

Tensor one_hot(const Tensor& indices, std::int64_t num_classes) {
  check(indices.defined(), "one_hot: indices is undefined, expected a tensor of i32 or i64");
  check(num_classes >= 1 || num_classes == -1, "one_hot: num_classes is {}, expected at least 1, or -1 to infer it",
        num_classes);
  const Tensor at = checked_index("one_hot", indices, num_classes == -1 ? INT64_MAX : num_classes).unsqueeze(-1);
  if (num_classes == -1) {
    check(at.numel() > 0, "one_hot: no indices to infer num_classes from: give it");
    for (std::int64_t i : at.to_vector<std::int64_t>()) num_classes = std::max(num_classes, i + 1);
  }
  Shape shape = indices.shape();
  shape.push_back(num_classes);
  return scatter_add(zeros({}, i64, at.device()).expand(shape), -1, at, ones(at.shape(), i64, at.device()));
}

}  // namespace halfgrad
