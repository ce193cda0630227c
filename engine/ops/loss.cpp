#include "engine/ops/loss.h"

#include "engine/autograd.h"
#include "engine/loops.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/elementwise_ops.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"
#include "engine/ops/softmax.h"

namespace halfgrad {

namespace {

Tensor widened(const Tensor& x) { return x.dtype() == f16 ? cast(x, f32) : x; }

Tensor reduced(const Tensor& loss, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean:
      return mean(loss);
    case Reduction::sum:
      return sum(loss);
    case Reduction::none:
      return loss;
  }
  fail("loss: reduction {} is none of mean, sum and none", static_cast<int>(reduction));
}

// --- of classes ---

void check_scores(const char* op, const Tensor& scores) {
  check(scores.defined() && is_floating(scores.dtype()) && scores.rank() >= 2,
        "{}: the input is {}, expected floats [N, C, ...]", op, scores);
}

void check_classes(const char* op, const Tensor& target, const Tensor& scores, std::int64_t ignore_index) {
  Shape expected = scores.shape();
  expected.erase(1);
  check(target.defined() && target.dtype() == i64 && target.shape() == expected,
        "{}: the target is {}, but an input {} goes with class indices i64 {}", op, target, scores.shape(), expected);
  check(target.device() == scores.device(), "{}: the input is on {}, the target on {}; move one with to(Device)", op,
        scores.device(), target.device());
  if (target.numel() == 0) return;
  check(scores.size(1) > 0, "{}: the input is {}, expected at least one class", op, scores);
  if (!target.device().is_cpu()) return;  // reading them would stall a GPU, whose kernels see to it
  const View view = target.view_of_data();
  LoopNest({&view}).for_runs<1>({0}, 0, view.numel(), [&](auto& offset, auto& stride, std::int64_t, std::int64_t n) {
    const auto* index = view.as<const std::int64_t>() + offset[0];
    for (std::int64_t i = 0; i < n; ++i, index += stride[0])
      check(*index == ignore_index || (*index >= 0 && *index < scores.size(1)),
            "{}: the target holds {}, expected classes 0 to {}, or {} to ignore a position", op, *index,
            scores.size(1) - 1, ignore_index);
  });
}

void check_weight(const char* op, const Tensor& weight, const Tensor& scores) {
  if (!weight.defined()) return;
  check(is_floating(weight.dtype()) && weight.shape() == Shape{scores.size(1)},
        "{}: weight is {}, expected one float for each of the {} classes", op, weight, scores.size(1));
  check(weight.device() == scores.device(), "{}: the input is on {}, the weight on {}; move one with to(Device)", op,
        scores.device(), weight.device());
}

// The weights as they multiply `scores` [N, C, *]: [C, 1, ...], in its dtype.
Tensor class_weights(const Tensor& weight, const Tensor& scores) {
  if (!weight.defined()) return weight;
  Shape shape(static_cast<std::size_t>(scores.rank() - 1), 1);
  shape[0] = scores.size(1);
  return cast(weight, scores.dtype()).reshape(shape);
}

// log_p [N, C, *] in f32 or f64, target checked.
Tensor nll(const Tensor& log_p, const Tensor& target, const Tensor& weight, double smoothing, std::int64_t ignore_index,
           Reduction reduction) {
  const Tensor ignored = target == ignore_index;
  const Tensor index = where(ignored, 0, target);  // any class will do where it is ignored
  Tensor loss = -gather(log_p, 1, index.unsqueeze(1)).squeeze(1);
  Tensor share;  // what a position counts in the mean
  if (weight.defined()) {
    share = index_select(weight.flatten(), 0, index.flatten()).reshape(target.shape());
    loss = loss * share;
  } else {
    share = ones(target.shape(), log_p.dtype(), log_p.device());
  }
  if (smoothing > 0) {
    const Tensor spread = -sum(weight.defined() ? log_p * weight : log_p, {1});
    loss = (1 - smoothing) * loss + smoothing / static_cast<double>(log_p.size(1)) * spread;
  }
  loss = where(ignored, 0, loss);
  if (reduction != Reduction::mean) return reduced(loss, reduction);
  return sum(loss) / sum(where(ignored, 0, share));
}

// The same with a probability for every class in place of an index.
Tensor soft_nll(const Tensor& log_p, const Tensor& target, const Tensor& weight, double smoothing,
                Reduction reduction) {
  Tensor p = cast(target, log_p.dtype());
  if (smoothing > 0) p = (1 - smoothing) * p + smoothing / static_cast<double>(log_p.size(1));
  return reduced(-sum(weight.defined() ? p * log_p * weight : p * log_p, {1}), reduction);
}

// Cross entropy made of other ops.
Tensor composed_cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& o) {
  const Tensor log_p = log_softmax(widened(logits), 1), weight = class_weights(o.weight, log_p);
  const Tensor loss = is_floating(target.dtype())
                          ? soft_nll(log_p, target, weight, o.label_smoothing, o.reduction)
                          : nll(log_p, target, weight, o.label_smoothing, o.ignore_index, o.reduction);
  return cast(loss, logits.dtype());
}

// One of the numbers of positions that lie behind each other in `memory`, as a tensor of this shape.
View plane(const Tensor& memory, std::int64_t number, const Shape& shape) {
  if (!memory.defined()) return {};
  View view = memory.view_of_data();
  view.data = view.at(number * shape.numel());
  view.shape = shape;
  view.strides = contiguous_strides(shape);
  return view;
}

CrossEntropyTerms terms_of(const CrossEntropyOptions& o) {
  return {o.weight.defined() ? o.weight.view_of_data() : View{}, o.label_smoothing, o.ignore_index};
}

struct CrossEntropyGradient {
  Saved logits, target, weight;
  Tensor normalizer;  // [2, N, *]: most and log_sum
  Tensor totals;      // [2]: the sums of loss and share, for a mean; else undefined
  CrossEntropyOptions options;

  Tensors operator()(const Tensor& dy) const {
    const Tensor &x = logits.get("cross_entropy"), &t = target.get("cross_entropy");
    weight.get("cross_entropy");
    if (grad_enabled()) {  // the gradient as a tensor that has one: that of the same loss, made of other ops
      const Tensor input = x.view(x.shape());
      return grad(composed_cross_entropy(input, t, options), {input}, dy, true, true);
    }
    View dy_of_each = dy.view_of_data();
    if (options.reduction != Reduction::none) dy_of_each.strides = Strides(t.shape().size(), 0);
    dy_of_each.shape = t.shape();
    Tensor dx = empty_like(x);
    backend_for(x.device())
        .cross_entropy_backward(dx.view_of_data(), dy_of_each, plane(totals, 1, {}), plane(normalizer, 0, t.shape()),
                                plane(normalizer, 1, t.shape()), x.view_of_data(), t.view_of_data(), terms_of(options));
    return {dx};
  }
};

// Cross entropy of class indices, in one pass over the logits: everything checked, the weight as the seam wants it.
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  Backend& backend = backend_for(logits.device());
  const DType dtype = logits.dtype(), compute = compute_dtype(dtype);
  const Shape& shape = target.shape();
  const std::int64_t positions = target.numel();
  const bool is_mean = options.reduction == Reduction::mean;
  Shape two = shape;
  two.insert(0, 2);
  const Tensor losses = empty(is_mean ? two : shape, compute, logits.device());  // for a mean, the shares behind them
  const Tensor normalizer = needs_grad(logits) ? empty(two, compute, logits.device()) : Tensor();
  backend.cross_entropy(plane(losses, 0, shape), is_mean ? plane(losses, 1, shape) : View{},
                        plane(normalizer, 0, shape), plane(normalizer, 1, shape), logits.view_of_data(),
                        target.view_of_data(), terms_of(options));

  Tensor y, totals;
  if (is_mean) {
    y = empty({}, dtype, logits.device());
    totals = empty({2, 1}, compute, logits.device());
    backend.reduce(ReduceOp::sum, totals.view_of_data(), plane(losses, 0, {2, positions}));
    backend.binary(elementwise::BinaryOps::position<elementwise::Div>(), compute, y.view_of_data(),
                   plane(totals, 0, {}), plane(totals, 1, {}));
  } else if (options.reduction == Reduction::sum) {
    y = empty({}, dtype, logits.device());
    backend.reduce(ReduceOp::sum, plane(y, 0, {1}), plane(losses, 0, {positions}));
  } else {
    y = cast(reduced(losses, options.reduction), dtype);
  }
  return record("cross_entropy", y, {logits},
                CrossEntropyGradient{Saved(logits), Saved(target), Saved(options.weight), normalizer, totals, options});
}

// --- of elements ---

// Output and target as they are computed with, and the dtype of the result.
struct Operands {
  Tensor output, target;
  DType dtype;
};

Operands operands(const char* op, const Tensor& output, const Tensor& target) {
  check(output.defined() && target.defined() && is_floating(output.dtype()) && is_floating(target.dtype()) &&
            output.shape() == target.shape(),
        "{}: output is {} and target {}, expected floats of equal shape", op, output, target);
  return {widened(output), widened(target), promote(output.dtype(), target.dtype())};
}

Tensor element_weights(const char* op, const char* name, const Tensor& weight, const Tensor& output) {
  check(is_floating(weight.dtype()) && broadcast_shapes(weight.shape(), output.shape(), op) == output.shape(),
        "{}: {} is {}, expected floats that broadcast to {}", op, name, weight, output.shape());
  return cast(weight, output.dtype());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  static constexpr const char* op = "cross_entropy";
  check_scores(op, logits);
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, "{}: label_smoothing is {}, expected 0 to 1", op,
        options.label_smoothing);
  const bool floats = target.defined() && is_floating(target.dtype());
  const bool soft = floats && target.shape() == logits.shape();
  check(soft || !floats, "{}: the target is {}, but probabilities need the input's shape {}, and class indices are i64",
        op, target, logits.shape());
  if (!soft) check_classes(op, target, logits, options.ignore_index);
  check_weight(op, options.weight, logits);
  if (soft || needs_grad(options.weight)) return composed_cross_entropy(logits, target, options);
  CrossEntropyOptions fused = options;
  if (fused.weight.defined()) fused.weight = cast(fused.weight.detach(), compute_dtype(logits.dtype())).contiguous();
  return fused_cross_entropy(logits, target, fused);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NllOptions& options) {
  static constexpr const char* op = "nll_loss";
  check_scores(op, log_probabilities);
  check_classes(op, target, log_probabilities, options.ignore_index);
  check_weight(op, options.weight, log_probabilities);
  const Tensor log_p = widened(log_probabilities), weight = class_weights(options.weight, log_p);
  return cast(nll(log_p, target, weight, 0, options.ignore_index, options.reduction), log_probabilities.dtype());
}

Tensor mse_loss(const Tensor& output, const Tensor& target, const ElementLossOptions& options) {
  const auto [x, t, dtype] = operands("mse_loss", output, target);
  return cast(reduced(square(x - t), options.reduction), dtype);
}

Tensor l1_loss(const Tensor& output, const Tensor& target, const ElementLossOptions& options) {
  const auto [x, t, dtype] = operands("l1_loss", output, target);
  return cast(reduced(abs(x - t), options.reduction), dtype);
}

Tensor smooth_l1_loss(const Tensor& output, const Tensor& target, const SmoothL1Options& options) {
  const double beta = options.beta;
  check(beta >= 0, "smooth_l1_loss: beta is {}, expected 0 or more", beta);
  if (beta == 0) return l1_loss(output, target, {.reduction = options.reduction});
  const auto [x, t, dtype] = operands("smooth_l1_loss", output, target);
  const Tensor d = abs(x - t);
  return cast(reduced(where(d < beta, square(d) * (0.5 / beta), d - 0.5 * beta), options.reduction), dtype);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target, const BceOptions& options) {
  static constexpr const char* op = "binary_cross_entropy_with_logits";
  const auto [x, t, dtype] = operands(op, logits, target);
  // -log(sigmoid(x)) = softplus(-x), and -log(1 - sigmoid(x)) = x + softplus(-x)
  const Tensor negative = softplus(-x);
  Tensor loss = (1 - t) * x;
  if (options.pos_weight.defined()) {
    const Tensor pos_weight = element_weights(op, "pos_weight", options.pos_weight, x);
    loss = loss + ((pos_weight - 1) * t + 1) * negative;
  } else {
    loss = loss + negative;
  }
  if (options.weight.defined()) loss = loss * element_weights(op, "weight", options.weight, x);
  return cast(reduced(loss, options.reduction), dtype);
}

}  // namespace halfgrad
