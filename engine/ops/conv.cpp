#include "engine/ops/conv.h"

#include "engine/autograd.h"
#include "engine/backend.h"
#include "engine/ops/activated.h"
#include "engine/ops/checks.h"
#include "engine/ops/join.h"

namespace halfgrad {
namespace {

Conv2dGeometry geometry_of(const Conv2dOptions& o) {
  return {{o.stride.h, o.stride.w}, {o.padding.h, o.padding.w}, {o.dilation.h, o.dilation.w}, o.groups};
}

void check_ranks(const char* op, const Shape& x, const Shape& weight, const char* expected_weight) {
  check(x.rank() == 4 && weight.rank() == 4, "{}: x is {} and weight is {}, expected x [N, C, H, W] and weight {}", op,
        x, weight, expected_weight);
  check(weight[0] >= 1 && weight[1] >= 1, "{}: weight is {}, expected at least one channel in and one out", op, weight);
}

// The shape [N, O, OH, OW] that x [N, C, H, W] and weight [O, C/groups, R, S] give; throws Error when they do
// not fit.
Shape output_shape(const char* op, const Shape& x, const Shape& weight, const Conv2dOptions& options) {
  check_ranks(op, x, weight, "[O, C/groups, R, S]");
  const std::int64_t groups = options.groups;
  check(groups >= 1 && x[1] % groups == 0 && weight[0] % groups == 0,
        "{}: groups is {}, expected a divisor of the {} channels of x and of the {} of weight", op, groups, x[1],
        weight[0]);
  check(weight[1] == x[1] / groups,
        "{}: x {} has {} channels in each of {} group(s) but weight {} expects {}: weight is [O, C/groups, "
        "R, S]",
        op, x, x[1] / groups, groups, weight, weight[1]);
  Shape y{x[0], weight[0], 0, 0};
  for (int axis : {0, 1})
    y[2 + axis] = detail::window_positions(op, x[2 + axis], weight[2 + axis], options.stride[axis],
                                           options.padding[axis], options.dilation[axis]);
  return y;
}

void check_output_gradient(const char* op, const Tensor& dy, const Shape& x, const Shape& weight,
                           const Conv2dOptions& options) {
  const Shape expected = output_shape(op, x, weight, options);
  check(dy.shape() == expected, "{}: dy is {}, but a convolution of x {} with weight {} gives {}", op, dy.shape(), x,
        weight, expected);
}

// The shape [N, O, OH, OW] that x [N, C, H, W] and weight [C, O/groups, R, S] give; throws Error when they do not fit.
Shape transposed_output_shape(const char* op, const Shape& x, const Shape& weight,
                              const ConvTranspose2dOptions& options) {
  check_ranks(op, x, weight, "[C, O/groups, R, S]");
  check(options.groups >= 1 && x[1] % options.groups == 0,
        "{}: groups is {}, expected a divisor of the {} channels of x", op, options.groups, x[1]);
  check(weight[0] == x[1], "{}: x {} has {} channels but weight {} expects {}: weight is [C, O/groups, R, S]", op, x,
        x[1], weight, weight[0]);
  Shape y{x[0], weight[1] * options.groups, 0, 0};
  for (int axis : {0, 1})
    y[2 + axis] = detail::window_coverage(op, x[2 + axis], weight[2 + axis], options.stride[axis],
                                          options.padding[axis], options.dilation[axis], options.output_padding[axis]);
  return y;
}

void check_bias(const char* op, const Tensor& x, const Tensor& bias, std::int64_t channels) {
  if (!bias.defined()) return;
  detail::require_same(op, "x", x, "bias", bias);
  check(bias.shape() == Shape{channels}, "{}: bias is {}, expected [{}], one number per output channel", op,
        bias.shape(), channels);
}

View view_or_absent(const Tensor& x) { return x.defined() ? x.view_of_data() : View{}; }

// The gradient of a bias that was added to every image and pixel.
Tensor bias_gradient(const Tensor& dy) { return sum_to_shape(dy, {dy.size(1), 1, 1}).flatten(); }

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
              Activation activation) {
  detail::require_float("conv2d", "x", x);
  detail::require_same("conv2d", "x", x, "weight", weight);
  if (x.rank() == 3) return conv2d(x.unsqueeze(0), weight, bias, options, activation).squeeze(0);
  const Shape shape = output_shape("conv2d", x.shape(), weight.shape(), options);
  check_bias("conv2d", x, bias, shape[1]);
  const Tensor y = detail::empty_channels_last(shape, x.dtype(), x.device());
  if (y.numel() > 0)
    backend_for(x.device())
        .conv2d(y.view_of_data(), x.view_of_data(), weight.view_of_data(), view_or_absent(bias), geometry_of(options),
                activation);
  const bool dx = needs_grad(x), dw = needs_grad(weight), db = needs_grad(bias);
  auto gradient = [x = Saved(dw ? x : Tensor()), w = Saved(dx ? weight : Tensor()), dx, dw, db, x_shape = x.shape(),
                   w_shape = weight.shape(), options](const Tensor& dy) {
    return Tensors{dx ? conv2d_input_gradient(dy, w.get("conv2d"), x_shape, options) : Tensor(),
                   dw ? conv2d_weight_gradient(x.get("conv2d"), dy, w_shape, options) : Tensor(),
                   db ? bias_gradient(dy) : Tensor()};
  };
  return detail::record_activated("conv2d", y, {x, weight, bias}, std::move(gradient), activation);
}

// Both gradients below are bilinear too. With <a, b> the sum over all elements of a*b, the gradients g
// satisfy <input_gradient(dy, w), g> = <dy, conv2d(g, w)> = <weight_gradient(g, dy), w> for every g: hence
// their gradients.

namespace {

// input_gradient(dy, weight), plus bias if there is one; `op` is what the caller is called. The shapes fit.
Tensor transposed(const char* op, const Tensor& dy, const Tensor& weight, const Tensor& bias, const Shape& x_shape,
                  const Conv2dOptions& options) {
  const Tensor dx = detail::empty_channels_last(x_shape, dy.dtype(), dy.device());
  if (dx.numel() > 0)
    backend_for(dy.device())
        .conv2d_backward_input(dx.view_of_data(), dy.view_of_data(), weight.view_of_data(), view_or_absent(bias),
                               geometry_of(options));
  const bool to_dy = needs_grad(dy), to_w = needs_grad(weight), to_bias = needs_grad(bias);
  return record(op, dx, {dy, weight, bias},
                [op, dy = Saved(to_w ? dy : Tensor()), w = Saved(to_dy ? weight : Tensor()), to_dy, to_w, to_bias,
                 w_shape = weight.shape(), options](const Tensor& g) {
                  return Tensors{to_dy ? conv2d(g, w.get(op), {}, options) : Tensor(),
                                 to_w ? conv2d_weight_gradient(g, dy.get(op), w_shape, options) : Tensor(),
                                 to_bias ? bias_gradient(g) : Tensor()};
                });
}

}  // namespace

Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options) {
  constexpr const char* op = "conv2d_input_gradient";
  detail::require_float(op, "dy", dy);
  detail::require_same(op, "dy", dy, "weight", weight);
  check_output_gradient(op, dy, x_shape, weight.shape(), options);
  return transposed(op, dy, weight, {}, x_shape, options);
}

Tensor conv2d_weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                              const Conv2dOptions& options) {
  constexpr const char* op = "conv2d_weight_gradient";
  detail::require_float(op, "x", x);
  detail::require_same(op, "x", x, "dy", dy);
  check_output_gradient(op, dy, x.shape(), weight_shape, options);
  // An empty batch adds nothing.
  const Tensor dw = (x.numel() > 0 ? empty : zeros)(weight_shape, x.dtype(), x.device());
  if (x.numel() > 0)
    backend_for(x.device())
        .conv2d_backward_weight(dw.view_of_data(), x.view_of_data(), dy.view_of_data(), geometry_of(options));
  const bool to_x = needs_grad(x), to_dy = needs_grad(dy);
  return record(op, dw, {x, dy},
                [x = Saved(to_dy ? x : Tensor()), dy = Saved(to_x ? dy : Tensor()), to_x, to_dy, x_shape = x.shape(),
                 options](const Tensor& g) {
                  return Tensors{to_x ? conv2d_input_gradient(dy.get(op), g, x_shape, options) : Tensor(),
                                 to_dy ? conv2d(x.get(op), g, {}, options) : Tensor()};
                });
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  constexpr const char* op = "conv_transpose2d";
  detail::require_float(op, "x", x);
  detail::require_same(op, "x", x, "weight", weight);
  if (x.rank() == 3) return conv_transpose2d(x.unsqueeze(0), weight, bias, options).squeeze(0);
  const Shape shape = transposed_output_shape(op, x.shape(), weight.shape(), options);
  check_bias(op, x, bias, shape[1]);
  // Where the dilation allows an output padding of whole strides, a convolution of the result has more positions than
  // x: there x counts as zero.
  const Pair missing(options.output_padding.h / options.stride.h, options.output_padding.w / options.stride.w);
  const Tensor all = missing.h + missing.w > 0 ? pad(x, {0, missing.w, 0, missing.h}) : x;
  return transposed(
      op, all, weight, bias, shape,
      {.stride = options.stride, .padding = options.padding, .dilation = options.dilation, .groups = options.groups});
}

}  // namespace halfgrad
