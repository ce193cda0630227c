// Views: other shapes and strides on the same storage. Each is differentiable, and its gradient is a view or made of
// views.

#include <algorithm>
#include <optional>

#include "engine/autograd.h"
#include "engine/tensor.h"

namespace halfgrad {

namespace {

Tensor make_view(const Tensor& x, Shape shape, Strides strides, std::int64_t offset_change = 0) {
  Tensor y = detail::alias_without_graph(x);
  y.impl()->offset += offset_change;
  y.impl()->shape = std::move(shape);
  y.impl()->strides = std::move(strides);
  return y;
}

// Replaces a -1 by the size that keeps the number of elements.
Shape resolve_shape(const Shape& wanted, const Shape& from, const char* op) {
  Shape shape = wanted;
  std::int64_t known = 1;
  int inferred = -1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == -1) {
      check(inferred < 0, "{}: the shape {} has more than one -1", op, wanted);
      inferred = d;
    } else {
      check(shape[d] >= 0, "{}: the shape {} has a negative size", op, wanted);
      known *= shape[d];
    }
  }
  const std::int64_t n = from.numel();
  if (inferred >= 0) {
    check(known != 0 && n % known == 0, "{}: {} elements of shape {} do not fit the shape {}", op, n, from, wanted);
    shape[inferred] = n / known;
  }
  check(shape.numel() == n, "{}: shape {} has {} elements; the shape {} needs {}", op, from, n, wanted, shape.numel());
  return shape;
}

// The strides with which memory laid out as (shape, strides) can be read in the new shape; nothing when it cannot.
// Runs of old dimensions that lie dense behind each other are split up anew.
std::optional<Strides> strides_for_view(const Shape& shape, const Strides& strides, const Shape& target) {
  if (shape.numel() == 0) return contiguous_strides(target);
  Strides out(target.size(), 1);
  int t = target.rank() - 1;
  std::int64_t run = 1;          // elements in the current run of old dimensions
  std::int64_t base_stride = 1;  // stride of its last dimension
  bool open = false;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (!open) {
      base_stride = strides[d];
      run = 1;
      open = true;
    }
    run *= shape[d];
    int outer = d - 1;
    while (outer >= 0 && shape[outer] == 1) --outer;
    if (outer >= 0 && strides[outer] == strides[d] * shape[d]) continue;  // the run goes on
    std::int64_t filled = 1;
    while (t >= 0 && filled < run) {
      out[t] = base_stride * filled;
      filled *= target[t];
      --t;
    }
    if (filled != run) return std::nullopt;
    open = false;
  }
  for (; t >= 0; --t) out[t] = t + 1 < target.rank() ? out[t + 1] * target[t + 1] : 1;  // sizes of 1 are left
  return out;
}

Shape inverse_permutation(const Shape& dims) {
  Shape inverse(dims.size(), 0);
  for (int d = 0; d < dims.rank(); ++d) inverse[static_cast<std::size_t>(dims[d])] = d;
  return inverse;
}

// The gradient of a slice: zeros, with dy in the places that were read. Differentiable: its gradient is the slice.
Tensor place_in_zeros(const Tensor& dy, const Shape& shape, int dim, std::int64_t start, std::int64_t stop,
                      std::int64_t step) {
  Tensor y = zeros(shape, dy.dtype(), dy.device());
  {
    NoGrad guard;
    y.slice(dim, start, stop, step).copy_(dy);
  }
  return record("slice_backward", y, {dy},
                [=](const Tensor& ddy) { return Tensors{ddy.slice(dim, start, stop, step)}; });
}

}  // namespace

Tensor Tensor::view(const Shape& wanted) const {
  const Shape target = resolve_shape(wanted, shape(), "view");
  const auto strides_now = strides_for_view(shape(), strides(), target);
  check(strides_now.has_value(),
        "view: a tensor of shape {} with strides {} cannot be seen as {} without a copy; use reshape", shape(),
        strides(), target);
  Tensor y = make_view(*this, target, *strides_now);
  const Shape before = shape();
  return record("view", y, {*this}, [before](const Tensor& dy) { return Tensors{dy.reshape(before)}; });
}

Tensor Tensor::reshape(const Shape& wanted) const {
  if (wanted == shape()) return *this;
  const Shape target = resolve_shape(wanted, shape(), "reshape");
  if (target == shape()) return *this;
  return strides_for_view(shape(), strides(), target) ? view(target) : contiguous().view(target);
}

Tensor Tensor::permute(const Shape& wanted) const {
  check(wanted.rank() == rank(), "permute: {} names {} dimensions; the tensor of shape {} has {}", wanted,
        wanted.rank(), shape(), rank());
  Shape dims, shape_now, strides_now;
  for (std::int64_t dim : wanted) {
    const int d = normalize_dim(dim, rank(), "permute");
    check(std::find(dims.begin(), dims.end(), d) == dims.end(), "permute: {} names dimension {} twice", wanted, d);
    dims.push_back(d);
    shape_now.push_back(shape()[d]);
    strides_now.push_back(strides()[d]);
  }
  Tensor y = make_view(*this, shape_now, strides_now);
  return record("permute", y, {*this},
                [inverse = inverse_permutation(dims)](const Tensor& dy) { return Tensors{dy.permute(inverse)}; });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  const int a = normalize_dim(dim0, rank(), "transpose");
  const int b = normalize_dim(dim1, rank(), "transpose");
  Shape shape_now = shape();
  Strides strides_now = strides();
  if (a != b) {
    std::swap(shape_now[a], shape_now[b]);
    std::swap(strides_now[a], strides_now[b]);
  }
  Tensor y = make_view(*this, std::move(shape_now), std::move(strides_now));
  return record("transpose", y, {*this}, [a, b](const Tensor& dy) { return Tensors{dy.transpose(a, b)}; });
}

Tensor Tensor::t() const {
  check(rank() <= 2, "t: the tensor has shape {}; expected rank 2 or less (use transpose or permute)", shape());
  return rank() < 2 ? *this : transpose(0, 1);
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  check(rank() > 0, "slice: a scalar has no dimension to slice");
  check(step >= 1, "slice: the step is {}; expected 1 or more (use flip to reverse)", step);
  const int d = normalize_dim(dim, rank(), "slice");
  const std::int64_t n = shape()[d];
  const auto bound = [n](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n); };
  const std::int64_t from = bound(start);
  const std::int64_t to = std::max(bound(stop), from);
  Shape shape_now = shape();
  Strides strides_now = strides();
  shape_now[d] = (to - from + step - 1) / step;
  strides_now[d] *= step;
  Tensor y = make_view(*this, shape_now, strides_now, shape_now[d] > 0 ? from * strides()[d] : 0);
  const Shape before = shape();
  return record("slice", y, {*this},
                [=](const Tensor& dy) { return Tensors{place_in_zeros(dy, before, d, from, to, step)}; });
}

Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  const std::int64_t n = size(dim);
  const std::int64_t from = start < 0 ? start + n : start;
  check(from >= 0 && length >= 0 && from + length <= n, "narrow: [{}, {}) is out of range for dimension {} of size {}",
        start, start + length, dim, n);
  return slice(dim, from, from + length);
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  check(rank() > 0, "select: a scalar has no dimension to select from");
  const int d = normalize_dim(dim, rank(), "select");
  const std::int64_t n = shape()[d];
  check(index >= -n && index < n, "select: index {} is out of range for dimension {} of size {}", index, d, n);
  const std::int64_t at = index < 0 ? index + n : index;
  return slice(d, at, at + 1).squeeze(d);
}

Tensor Tensor::expand(const Shape& wanted) const {
  check(wanted.rank() >= rank(), "expand: the shape {} has fewer dimensions than the tensor's, {}", wanted, shape());
  Shape target = wanted;
  const int lead = target.rank() - rank();
  for (int d = 0; d < target.rank(); ++d) {
    if (target[d] == -1) {
      check(d >= lead, "expand: -1 keeps a size, but dimension {} of {} is new", d, wanted);
      target[d] = shape()[d - lead];
    }
    check(d < lead || shape()[d - lead] == target[d] || shape()[d - lead] == 1,
          "expand: dimension {} has size {}; expected {} or 1 to expand shape {} to {}", d - lead,
          d < lead ? 0 : shape()[d - lead], target[d], shape(), wanted);
    check(target[d] >= 0, "expand: the shape {} has a negative size", wanted);
  }
  if (target == shape()) return *this;
  Tensor y = make_view(*this, target, broadcast_strides(shape(), strides(), target));
  return record("expand", y, {*this},
                [before = shape()](const Tensor& dy) { return Tensors{sum_to_shape(dy, before)}; });
}

Tensor Tensor::squeeze() const {
  Shape kept;
  for (std::int64_t n : shape())
    if (n != 1) kept.push_back(n);
  return reshape(kept);
}

Tensor Tensor::squeeze(std::int64_t dim) const {
  const int d = normalize_dim(dim, rank(), "squeeze");
  if (rank() == 0 || shape()[d] != 1) return *this;
  Shape shape_now = shape();
  Strides strides_now = strides();
  shape_now.erase(static_cast<std::size_t>(d));
  strides_now.erase(static_cast<std::size_t>(d));
  Tensor y = make_view(*this, shape_now, strides_now);
  return record("squeeze", y, {*this}, [d](const Tensor& dy) { return Tensors{dy.unsqueeze(d)}; });
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  const int d = normalize_dim(dim, rank() + 1, "unsqueeze");
  Shape shape_now = shape();
  Strides strides_now = strides();
  const std::int64_t stride = d < rank() ? strides()[d] * shape()[d] : 1;
  shape_now.insert(static_cast<std::size_t>(d), 1);
  strides_now.insert(static_cast<std::size_t>(d), stride);
  Tensor y = make_view(*this, shape_now, strides_now);
  return record("unsqueeze", y, {*this}, [d](const Tensor& dy) { return Tensors{dy.squeeze(d)}; });
}

Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim) const {
  if (rank() == 0) return reshape({1});
  const int first = normalize_dim(start_dim, rank(), "flatten");
  const int last = normalize_dim(end_dim, rank(), "flatten");
  check(first <= last, "flatten: start dimension {} is behind end dimension {}", start_dim, end_dim);
  Shape target;
  std::int64_t merged = 1;
  for (int d = 0; d < rank(); ++d) {
    if (d < first || d > last)
      target.push_back(shape()[d]);
    else
      merged *= shape()[d];
    if (d == last) target.push_back(merged);
  }
  return reshape(target);
}

}  // namespace halfgrad
