#include "engine/ops/pool.h"

#include "engine/autograd.h"
#include "engine/backend.h"
#include "engine/ops/checks.h"
#include "engine/ops/index.h"

namespace halfgrad {
namespace {

PoolGeometry geometry_of(const Pair& kernel, const PoolOptions& o) {
  PoolGeometry g{.count_include_pad = o.count_include_pad};
  for (int axis : {0, 1}) {
    g.kernel[axis] = kernel[axis];
    g.stride[axis] = o.stride[axis] == 0 ? kernel[axis] : o.stride[axis];
    g.padding[axis] = o.padding[axis];
    g.dilation[axis] = o.dilation[axis];
  }
  return g;
}

// The shape after pooling; throws Error when a window would see nothing but padding.
Shape output_shape(const char* op, const Shape& x, const PoolGeometry& g) {
  Shape y = x;
  for (int axis : {0, 1}) {
    const std::int64_t size = x[2 + axis], kernel = g.kernel[axis], stride = g.stride[axis];
    const std::int64_t padding = g.padding[axis], dilation = g.dilation[axis];
    const std::int64_t positions = detail::window_positions(op, size, kernel, stride, padding, dilation);
    check(padding <= kernel / 2, "{}: padding {} is more than half of the kernel {}: use less padding", op, padding,
          kernel);
    // A dilated window may step over a small input altogether.
    for (std::int64_t i = 0; dilation > 1 && padding > 0 && i < positions; ++i) {
      const std::int64_t start = i * stride - padding;
      const std::int64_t first = start >= 0 ? start : start + (-start + dilation - 1) / dilation * dilation;
      check(first < size && first <= start + dilation * (kernel - 1),
            "{}: with dilation {} and padding {}, window {} of kernel {} sees only padding: use less of them", op,
            dilation, padding, i, kernel);
    }
    y[2 + axis] = positions;
  }
  return y;
}

void check_input(const char* op, const Tensor& x) {
  detail::require_float(op, "x", x);
  check(x.rank() == 4, "{}: x is {}, expected [N, C, H, W] or [C, H, W]", op, x.shape());
  check(x.size(2) > 0 && x.size(3) > 0 && x.size(2) <= INT32_MAX / x.size(3),
        "{}: x is {}, expected planes of 1 to {} elements", op, x.shape(), INT32_MAX);
}

// What the gradient has to know of x without keeping its memory alive.
struct Layout {
  Shape shape;
  bool channels_last;

  explicit Layout(const Tensor& x) : shape(x.shape()), channels_last(detail::prefers_channels_last(x)) {}
  Tensor empty_like(const Tensor& dy) const {
    return detail::empty_in_layout(channels_last, shape, dy.dtype(), dy.device());
  }
};

// Sends each dy to the position of its maximum. Linear in dy: its gradient picks from the same positions.
Tensor max_pool2d_gradient(const Tensor& dy, const Tensor& index, const Layout& x) {
  const Tensor dx = x.empty_like(dy);
  if (dx.numel() > 0)
    backend_for(dy.device()).max_pool2d_backward(dx.view_of_data(), dy.view_of_data(), index.view_of_data());
  return record("max_pool2d_gradient", dx, {dy}, [index](const Tensor& g) {
    return Tensors{gather(g.flatten(2), 2, index.flatten(2)).reshape(index.shape())};
  });
}

// Averages are linear too, so each of these two is the other's gradient.
Tensor avg_pool2d_gradient(const char* op, const Tensor& dy, const Layout& x, const PoolGeometry& geometry);

Tensor average(const char* op, const Tensor& x, const Shape& shape, const PoolGeometry& geometry) {
  const Tensor y = detail::empty_in_layout(detail::prefers_channels_last(x), shape, x.dtype(), x.device());
  if (y.numel() > 0) backend_for(x.device()).avg_pool2d(y.view_of_data(), x.view_of_data(), geometry);
  return record(op, y, {x}, [op, layout = Layout(x), geometry](const Tensor& dy) {
    return Tensors{avg_pool2d_gradient(op, dy, layout, geometry)};
  });
}

Tensor avg_pool2d_gradient(const char* op, const Tensor& dy, const Layout& x, const PoolGeometry& geometry) {
  const Tensor dx = x.empty_like(dy);
  if (dx.numel() > 0) backend_for(dy.device()).avg_pool2d_backward(dx.view_of_data(), dy.view_of_data(), geometry);
  return record("avg_pool2d_gradient", dx, {dy}, [op, shape = dy.shape(), geometry](const Tensor& g) {
    return Tensors{average(op, g, shape, geometry)};
  });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Pair kernel, const PoolOptions& options) {
  if (x.defined() && x.rank() == 3) return max_pool2d(x.unsqueeze(0), kernel, options).squeeze(0);
  check_input("max_pool2d", x);
  const PoolGeometry geometry = geometry_of(kernel, options);
  const Shape shape = output_shape("max_pool2d", x.shape(), geometry);
  const Tensor y = detail::empty_in_layout(detail::prefers_channels_last(x), shape, x.dtype(), x.device());
  Tensor index;  // position of each maximum in its plane; only the gradient needs it
  if (needs_grad(x)) index = empty_strided(shape, y.strides(), i32, x.device());
  if (y.numel() > 0)
    backend_for(x.device())
        .max_pool2d(y.view_of_data(), index.defined() ? index.view_of_data() : View{}, x.view_of_data(), geometry);
  return record("max_pool2d", y, {x}, [index, layout = Layout(x)](const Tensor& dy) {
    return Tensors{max_pool2d_gradient(dy, index, layout)};
  });
}

Tensor avg_pool2d(const Tensor& x, Pair kernel, const PoolOptions& options) {
  if (x.defined() && x.rank() == 3) return avg_pool2d(x.unsqueeze(0), kernel, options).squeeze(0);
  check_input("avg_pool2d", x);
  check(options.dilation.h == 1 && options.dilation.w == 1, "avg_pool2d: dilation is {}x{}, expected 1",
        options.dilation.h, options.dilation.w);
  const PoolGeometry geometry = geometry_of(kernel, options);
  return average("avg_pool2d", x, output_shape("avg_pool2d", x.shape(), geometry), geometry);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair output) {
  if (x.defined() && x.rank() == 3) return adaptive_avg_pool2d(x.unsqueeze(0), output).squeeze(0);
  check_input("adaptive_avg_pool2d", x);
  check(output.h >= 1 && output.w >= 1 && output.h <= INT32_MAX && output.w <= INT32_MAX,
        "adaptive_avg_pool2d: output is {}x{}, expected sizes of at least 1", output.h, output.w);
  PoolGeometry geometry;
  geometry.adaptive = true;
  return average("adaptive_avg_pool2d", x, {x.size(0), x.size(1), output.h, output.w}, geometry);
}

}  // namespace halfgrad
