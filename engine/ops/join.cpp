#include "engine/ops/join.h"

#include <algorithm>

#include "engine/autograd.h"
#include "engine/backend.h"
#include "engine/ops/checks.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"

namespace halfgrad {
namespace {

// Copies without a trace in the graph or in versions: for memory that the caller has just made.
void copy_values(const Tensor& to, const Tensor& from) {
  if (from.numel() > 0) backend_for(to.device()).copy(to.view_of_data(), from.view_of_data());
}

}  // namespace

Tensor cat(const Tensors& tensors, std::int64_t dim) {
  check(!tensors.empty(), "cat: no tensors, expected at least one");
  for (const Tensor& x : tensors) check(x.defined(), "cat: one of the {} tensors is undefined", tensors.size());
  const Tensor& first = tensors[0];
  check(first.rank() >= 1, "cat: the tensors have rank 0, expected at least one dimension: use stack");
  const int d = normalize_dim(dim, first.rank(), "cat");
  const auto at = static_cast<std::size_t>(d);

  Shape shape = first.shape();
  shape[at] = 0;
  DType dtype = first.dtype();
  bool channels_last = true;
  for (const Tensor& x : tensors) {
    Shape expected = shape;
    if (x.rank() == first.rank()) expected[at] = x.shape()[at];
    check(x.shape() == expected, "cat: a tensor is {} and the first is {}; expected equal sizes except along dim {}",
          x.shape(), first.shape(), d);
    check(x.device() == first.device(), "cat: the tensors are on different devices: move them with .to(device)");
    dtype = promote(dtype, x.dtype());
    channels_last = channels_last && detail::prefers_channels_last(x);
    shape[at] += x.shape()[at];
  }

  const Tensor y = detail::empty_in_layout(channels_last, shape, dtype, first.device());
  struct Part {
    std::int64_t start, length;
    DType dtype;
    bool wanted;
  };
  std::vector<Part> parts;
  std::int64_t start = 0;
  for (const Tensor& x : tensors) {
    parts.push_back({start, x.shape()[at], x.dtype(), needs_grad(x)});
    copy_values(y.narrow(d, start, x.shape()[at]), x);
    start += x.shape()[at];
  }
  return record("cat", y, tensors, [parts, d](const Tensor& dy) {
    Tensors gradients;
    for (const Part& p : parts)
      gradients.push_back(p.wanted ? cast(dy.narrow(d, p.start, p.length), p.dtype) : Tensor());
    return gradients;
  });
}

Tensor stack(const Tensors& tensors, std::int64_t dim) {
  check(!tensors.empty(), "stack: no tensors, expected at least one");
  Tensors layers;
  for (const Tensor& x : tensors) {
    check(x.defined(), "stack: one of the {} tensors is undefined", tensors.size());
    check(x.shape() == tensors[0].shape(), "stack: a tensor is {} and the first is {}; expected equal shapes",
          x.shape(), tensors[0].shape());
    layers.push_back(x.unsqueeze(normalize_dim(dim, x.rank() + 1, "stack")));
  }
  return cat(layers, normalize_dim(dim, tensors[0].rank() + 1, "stack"));
}

Tensors split(const Tensor& x, const Shape& sizes, std::int64_t dim) {
  check(x.defined() && x.rank() >= 1, "split: x is {}, expected at least one dimension", x);
  const int d = normalize_dim(dim, x.rank(), "split");
  std::int64_t left = x.size(d);
  for (std::int64_t size : sizes) {
    check(size >= 0 && size <= left, "split: sizes {} do not add up to {}, the size of dim {} of {}", sizes, x.size(d),
          d, x.shape());
    left -= size;
  }
  check(left == 0, "split: sizes {} do not add up to {}, the size of dim {} of {}", sizes, x.size(d), d, x.shape());
  Tensors parts;
  std::int64_t start = 0;
  for (std::int64_t size : sizes) {
    parts.push_back(x.narrow(d, start, size));
    start += size;
  }
  return parts;
}

Tensors split(const Tensor& x, std::int64_t size, std::int64_t dim) {
  check(x.defined() && x.rank() >= 1, "split: x is {}, expected at least one dimension", x);
  check(size >= 1, "split: size is {}, expected at least 1", size);
  const std::int64_t total = x.size(normalize_dim(dim, x.rank(), "split"));
  Shape sizes;
  for (std::int64_t start = 0; start < total; start += size) sizes.push_back(std::min(size, total - start));
  if (total == 0) sizes.push_back(0);
  return split(x, sizes, dim);
}

Tensors chunk(const Tensor& x, std::int64_t count, std::int64_t dim) {
  check(x.defined() && x.rank() >= 1, "chunk: x is {}, expected at least one dimension", x);
  check(count >= 1, "chunk: count is {}, expected at least 1", count);
  const std::int64_t total = x.size(normalize_dim(dim, x.rank(), "chunk"));
  return split(x, std::max<std::int64_t>(1, total / count + (total % count != 0)), dim);
}

Tensor pad(const Tensor& x, const Shape& pads, double value) {
  check(x.defined(), "pad: x is undefined, expected a tensor");
  check(pads.size() % 2 == 0 && pads.rank() <= 2 * x.rank(),
        "pad: {} numbers of padding for x {}; expected {{before, after}} for at most {} dimensions, the last "
        "one first",
        pads.size(), x.shape(), x.rank());
  Shape shape = x.shape(), back = pads;
  Tensor inside = x.detach();  // what of x is left after cropping
  for (int i = 0; i < pads.rank() / 2; ++i) {
    const int d = x.rank() - 1 - i;
    const std::int64_t n = x.size(d);
    std::int64_t &before = back[static_cast<std::size_t>(2 * i)], &after = back[static_cast<std::size_t>(2 * i + 1)];
    check(std::max(before, after) <= INT32_MAX && std::min(before, after) >= -INT32_MAX && n + before + after >= 0,
          "pad: {} before and {} after dim {} of x {} leaves a size below 0 (or more than 2^31 is added)", before,
          after, d, x.shape());
    shape[static_cast<std::size_t>(d)] = n + before + after;
    inside = inside.slice(d, std::clamp<std::int64_t>(-before, 0, n), n + std::clamp<std::int64_t>(after, -n, 0));
    before = -before;
    after = -after;
  }
  const Tensor y = detail::empty_in_layout(detail::prefers_channels_last(x), shape, x.dtype(), x.device());
  if (y.numel() > 0 && y.numel() > inside.numel()) copy_values(y, full({}, value, x.dtype(), x.device()).expand(shape));
  if (inside.numel() > 0) {
    Tensor middle = y;
    for (int i = 0; i < pads.rank() / 2; ++i) {
      const int d = x.rank() - 1 - i;
      middle = middle.narrow(d, std::max<std::int64_t>(pads[static_cast<std::size_t>(2 * i)], 0), inside.size(d));
    }
    copy_values(middle, inside);
  }
  // What was added drops out of the gradient, and what was cropped gets zeros.
  return record("pad", y, {x}, [back](const Tensor& dy) { return Tensors{pad(dy, back)}; });
}

Tensor flip(const Tensor& x, const Shape& dims) {
  check(x.defined(), "flip: x is undefined, expected a tensor");
  if (dims.empty()) return x.clone();
  Tensor y = x;
  for (std::int64_t d : normalize_dims(dims, x.rank(), "flip"))
    y = index_select(y, d, arange(static_cast<double>(y.size(d)) - 1, -1, -1, i64, x.device()));
  return y;
}

}  // namespace halfgrad
