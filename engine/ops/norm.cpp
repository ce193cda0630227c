#include "engine/ops/norm.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace halfgrad {
namespace {

void check_input(const Tensor& x, const char* op) {
  check(x.defined(), "{}: the input is undefined", op);
  check(is_floating(x.dtype()), "{}: the input is {}; expected a float type, convert it with to(f32)", op,
        name_of(x.dtype()));
}

// A parameter or statistic with the given shape, or undefined.
void check_parameter(const Tensor& p, const Shape& shape, const Tensor& x, const char* op, const char* name) {
  if (!p.defined()) return;
  check(p.shape() == shape && is_floating(p.dtype()),
        "{}: {} is {} of shape {}, expected a float tensor of shape {} for an input of shape {}", op, name,
        name_of(p.dtype()), p.shape(), shape, x.shape());
  check(p.device() == x.device(), "{}: {} is on {}, the input on {}; move one with to(Device)", op, name, p.device(),
        x.device());
}

// (x - mean) * rstd over `dims` as a composition of differentiable ops, where a gradient of the gradient is
// wanted.
struct Standardized {
  Tensor rstd, z;
  Standardized(const Tensor& x, const Shape& dims, double eps) {
    const Tensor distance = x - mean(x, dims, true);
    rstd = halfgrad::rsqrt(mean(square(distance), dims, true) + eps);
    z = distance * rstd;
  }
  // With g the gradient of z: dx = rstd * (g - mean(g) - z * mean(g z)).
  Tensor gradient(const Tensor& g, const Shape& dims) const {
    return rstd * (g - mean(g, dims, true) - z * mean(g * z, dims, true));
  }
};

// An empty tensor like p, when its gradient is wanted.
Tensor gradient_like(const Tensor& p, bool wanted) { return wanted ? empty_like(p) : Tensor(); }
View view_of(const Tensor& x) { return x.defined() ? x.view_of_data() : View{}; }

// --- batch normalisation ---------------------------------------------------------------------------------------------

// x [N, C, *] as [N, C, S]; nothing when the last dimensions do not lie behind each other in memory.
std::optional<View> channels_view(const Tensor& x) {
  View view = x.view_of_data();
  std::int64_t positions = 1, stride = 1;
  for (int d = x.rank() - 1; d >= 2; --d) {
    const std::int64_t size = x.size(d), step = x.strides()[static_cast<std::size_t>(d)];
    if (size == 1) continue;
    if (positions == 1) stride = step;
    if (positions != 1 && step != stride * positions) return std::nullopt;
    positions *= size;
  }
  view.shape = {x.size(0), x.size(1), positions};
  view.strides = {x.strides()[0], x.strides()[1], stride};
  return view;
}
Tensor with_channels_view(const Tensor& x) { return channels_view(x) ? x : x.contiguous(); }

// dy in the memory order of x: the kernels are fast when they walk through both in the same way.
Tensor in_order_of(const Tensor& dy, const Tensor& x) {
  Tensor y = empty_like(x);
  return y.strides() == dy.strides() ? dy : y.copy_(dy);
}

// What the gradient of batch_norm needs to know.
struct BatchNormGradient {
  Saved x, weight, bias;  // the bias only for relu
  bool has_weight, has_bias, need_x, need_weight, need_bias, training;
  Tensor mean, rstd;
  Shape dims, channels;  // all dimensions but that of the channels; [1, C, 1, ...]
  DType bias_dtype;
  double eps;
  Activation activation;

  Tensors operator()(const Tensor& dy) const {
    const Tensor& input = x.get("batch_norm");
    const Tensor w = has_weight ? weight.get("batch_norm") : Tensor();
    const Tensor b = has_bias && activation != Activation::none ? bias.get("batch_norm") : Tensor();
    return grad_enabled() ? composed(dy, input, w, b) : fused(dy, input, w, b);
  }

  Tensors fused(const Tensor& dy_in_any_order, const Tensor& input, const Tensor& w, const Tensor& b) const {
    const Tensor dy = in_order_of(dy_in_any_order, input);
    const Tensor dx = gradient_like(input, need_x), dw = gradient_like(w, need_weight);
    const Tensor db = need_bias ? empty(mean.shape(), bias_dtype, input.device()) : Tensor();
    backend_for(input.device())
        .batch_norm_backward(dx.defined() ? *channels_view(dx) : View{}, view_of(dw), view_of(db), *channels_view(dy),
                             *channels_view(input), mean.view_of_data(), rstd.view_of_data(), view_of(w), view_of(b),
                             training, activation);
    return {dx, dw, db};
  }

  Tensors composed(const Tensor& dy, const Tensor& input, const Tensor& w, const Tensor& b) const {
    const Tensor v = cast(input, mean.dtype());
    std::optional<Standardized> standardized;
    if (training) standardized.emplace(v, dims, eps);
    const Tensor z = training ? standardized->z : (v - mean.reshape(channels)) * rstd.reshape(channels);
    Tensor d = cast(dy, mean.dtype());
    if (activation == Activation::relu) {
      Tensor y = has_weight ? z * w.reshape(channels) : z;
      if (has_bias) y = y + b.reshape(channels);
      d = detail::relu_gradient(d, cast(y, input.dtype()));
    }
    const Tensor g = has_weight ? d * w.reshape(channels) : d;
    const Tensor dx = training ? standardized->gradient(g, dims) : g * rstd.reshape(channels);
    return {need_x ? cast(dx, input.dtype()) : Tensor(), need_weight ? cast(sum(d * z, dims), w.dtype()) : Tensor(),
            need_bias ? cast(sum(d, dims), bias_dtype) : Tensor()};
  }
};

// running = (1 - momentum) * running + momentum * batch, unless a statistic of the batch is not finite. The
// choice is made by a tensor on the device, so nothing waits for it.
void update_running(Tensor running_mean, Tensor running_var, const Tensor& mean, const Tensor& rstd, double eps,
                    std::int64_t count, double momentum) {
  NoGrad guard;
  const auto n = static_cast<double>(count);
  const Tensor var = clamp(reciprocal(square(rstd)) - eps, 0, std::numeric_limits<double>::infinity()) * (n / (n - 1));
  const Tensor finite = all(isfinite(mean + var));
  const auto update = [&](Tensor& running, const Tensor& batch) {
    if (running.defined()) running.copy_(where(finite, running + momentum * (batch - running), running));
  };
  update(running_mean, mean);
  update(running_var, var);
}

}  // namespace

Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps, Activation activation) {
  check_input(input, "batch_norm");
  check(input.rank() >= 2, "batch_norm: the input has shape {}, expected [N, C, ...]", input.shape());
  const std::int64_t channels = input.size(1);
  check_parameter(weight, {channels}, input, "batch_norm", "weight");
  check_parameter(bias, {channels}, input, "batch_norm", "bias");
  check_parameter(running_mean, {channels}, input, "batch_norm", "running_mean");
  check_parameter(running_var, {channels}, input, "batch_norm", "running_var");
  check(running_mean.defined() == running_var.defined(),
        "batch_norm: only one of running_mean and running_var is given; expected both or none");

  const bool of_batch = training || !running_mean.defined();
  const std::int64_t count = channels == 0 ? 0 : input.numel() / channels;
  check(!of_batch || count != 1,
        "batch_norm: an input of shape {} has one value per channel, whose variance is not defined; expected "
        "a larger "
        "batch in training, or running statistics and eval()",
        input.shape());

  const Tensor x = with_channels_view(input);
  const DType compute = compute_dtype(x.dtype());
  Tensor y = empty_like(x), mean, rstd;
  if (of_batch) {
    mean = empty({channels}, compute, x.device());
    rstd = empty({channels}, compute, x.device());
    backend_for(x.device())
        .batch_norm(*channels_view(y), mean.view_of_data(), rstd.view_of_data(), *channels_view(x), view_of(weight),
                    view_of(bias), eps, activation);
    if (training && running_mean.defined()) update_running(running_mean, running_var, mean, rstd, eps, count, momentum);
  } else {
    NoGrad guard;
    mean = running_mean.to(compute).clone();  // a copy: training may go on before backward
    rstd = rsqrt(running_var.to(compute) + eps);
    backend_for(x.device())
        .normalize_channels(*channels_view(y), *channels_view(x), mean.view_of_data(), rstd.view_of_data(),
                            view_of(weight), view_of(bias), activation);
  }

  BatchNormGradient gradient{Saved(x),
                             Saved(weight),
                             Saved(activation == Activation::none ? Tensor() : bias),
                             weight.defined(),
                             bias.defined(),
                             needs_grad(x),
                             needs_grad(weight),
                             needs_grad(bias),
                             of_batch,
                             mean,
                             rstd,
                             {},
                             {},
                             f32,
                             eps,
                             activation};
  gradient.channels = Shape(static_cast<std::size_t>(x.rank()), 1);
  gradient.channels[1] = channels;
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (d != 1) gradient.dims.push_back(d);
  if (bias.defined()) gradient.bias_dtype = bias.dtype();
  return record("batch_norm", y, {x, weight, bias}, std::move(gradient));
}

// --- layer normalisation ---------------------------------------------------------------------------------------------

namespace {

struct LayerNormGradient {
  Saved x, weight;  // x [R, n], weight [n]
  bool has_weight, need_x, need_weight, need_bias;
  Tensor mean, rstd;
  DType bias_dtype;
  double eps;

  Tensors operator()(const Tensor& dy) const {
    const Tensor& input = x.get("layer_norm");
    const Tensor w = has_weight ? weight.get("layer_norm") : Tensor();
    return grad_enabled() ? composed(dy, input, w) : fused(dy, input, w);
  }

  Tensors fused(const Tensor& dy, const Tensor& input, const Tensor& w) const {
    const Tensor dx = gradient_like(input, need_x), dw = gradient_like(w, need_weight);
    const Tensor db = need_bias ? empty({input.size(1)}, bias_dtype, input.device()) : Tensor();
    backend_for(input.device())
        .layer_norm_backward(view_of(dx), view_of(dw), view_of(db), dy.view_of_data(), input.view_of_data(),
                             mean.view_of_data(), rstd.view_of_data(), view_of(w));
    return {dx, dw, db};
  }

  Tensors composed(const Tensor& dy, const Tensor& input, const Tensor& w) const {
    const Tensor d = cast(dy, mean.dtype());
    const Standardized standardized(cast(input, mean.dtype()), {1}, eps);
    const Tensor dx = standardized.gradient(has_weight ? d * w : d, {1});
    return {need_x ? cast(dx, input.dtype()) : Tensor(),
            need_weight ? cast(sum(d * standardized.z, {0}), w.dtype()) : Tensor(),
            need_bias ? cast(sum(d, {0}), bias_dtype) : Tensor()};
  }
};

// x [R, n], weight and bias [n]
Tensor layer_norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const DType compute = compute_dtype(x.dtype());
  Tensor y = empty_like(x);
  const Tensor mean = empty({x.size(0)}, compute, x.device()), rstd = empty({x.size(0)}, compute, x.device());
  backend_for(x.device())
      .layer_norm(y.view_of_data(), mean.view_of_data(), rstd.view_of_data(), x.view_of_data(), view_of(weight),
                  view_of(bias), eps);
  return record(
      "layer_norm", y, {x, weight, bias},
      LayerNormGradient{Saved(x), weight.defined() ? Saved(weight) : Saved(), weight.defined(), needs_grad(x),
                        needs_grad(weight), needs_grad(bias), mean, rstd, bias.defined() ? bias.dtype() : f32, eps});
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_input(x, "layer_norm");
  const std::size_t rank = x.shape().size(), last = normalized_shape.size();
  check(
      last > 0 && last <= rank && std::equal(normalized_shape.begin(), normalized_shape.end(), x.shape().end() - last),
      "layer_norm: normalized_shape is {}, expected the last dimensions of the input, which has shape {}",
      normalized_shape, x.shape());
  check_parameter(weight, normalized_shape, x, "layer_norm", "weight");
  check_parameter(bias, normalized_shape, x, "layer_norm", "bias");
  const std::int64_t n = normalized_shape.numel();
  const auto flat = [n](const Tensor& p) { return p.defined() ? p.reshape({n}) : Tensor(); };
  const Tensor rows = x.reshape({n == 0 ? 0 : x.numel() / n, n});
  return layer_norm_rows(rows, flat(weight), flat(bias), eps).reshape(x.shape());
}

}  // namespace halfgrad
