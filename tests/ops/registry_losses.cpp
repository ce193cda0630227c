#include <cmath>

#include "engine/ops/dropout.h"
#include "engine/ops/loss.h"
#include "engine/philox.h"
#include "engine/random.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;
using Line = std::vector<Num>;

constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};

const char* name_of(Reduction reduction) {
  return reduction == Reduction::mean ? "mean" : reduction == Reduction::sum ? "sum" : "none";
}

Array reduced(const Array& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  Num y = oracle::total(losses.values);
  if (reduction == Reduction::mean) y = y / Num(static_cast<double>(losses.values.size()));
  return Array({}, losses.dtype, {y});
}

// --- of elements -------------------------------------------------------------------------------------------

using ElementLoss = std::function<Tensor(const Tensor& output, const Tensor& target, Reduction)>;

Entry& element_loss(Entries& entries, const char* name, const ElementLoss& loss,
                    const std::function<Num(const Num&, const Num&)>& f, double target_low, double target_high) {
  Entry& entry = make_entry(entries, name);
  for (Reduction reduction : kReductions)
    for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{2, 3, 2, 3}, Shape{}, Shape{33, 67}}) {
      Case& c = entry.add(
          fmt::format("{} {}", shape.str(), name_of(reduction)),
          {uniform(shape, -2, 2, 1), uniform(shape, target_low, target_high, 2)},
          [=](const Tensors& x) { return loss(x[0], x[1], reduction); },
          [=](const Arrays& x) { return reduced(oracle::zip(x[0], x[1], f), reduction); });
      c.layouts = shape.numel() < 100;
    }
  entry
      .add(
          "f16 against f32", {uniform({3, 5}, -2, 2, 1).to(f16), uniform({3, 5}, target_low, target_high, 2).to(f32)},
          [=](const Tensors& x) { return loss(x[0], x[1], Reduction::mean); },
          [=](const Arrays& x) { return reduced(oracle::zip(x[0], x[1], f), Reduction::mean); })
      .dtypes.clear();
  entry.error("shapes that broadcast but are not equal", [loss] { loss(ones({3, 1}), ones({3}), Reduction::mean); });
  entry.error("an integer target", [loss] { loss(ones({3}), zeros({3}, i64), Reduction::mean); });
  entry.error("an undefined target", [loss] { loss(ones({3}), Tensor(), Reduction::mean); });
  return entry;
}

// -(target * log sigmoid(x) * pos_weight + (1 - target) * log(1 - sigmoid(x)))
Num binary_cross_entropy(const Num& x, const Num& target, const Num& pos_weight) {
  const auto softplus = [](const Num& v) {
    return (v.value > 0 ? v : Num(0)) + oracle::log1p(oracle::exp(-oracle::abs(v)));
  };
  return (1.0 - target) * x + ((pos_weight - 1.0) * target + 1.0) * softplus(-x);
}

void register_element_losses(Entries& entries) {
  element_loss(
      entries, "mse_loss",
      [](const Tensor& x, const Tensor& t, Reduction r) { return mse_loss(x, t, {.reduction = r}); },
      [](const Num& x, const Num& t) { return (x - t) * (x - t); }, -2, 2);
  element_loss(
      entries, "l1_loss", [](const Tensor& x, const Tensor& t, Reduction r) { return l1_loss(x, t, {.reduction = r}); },
      [](const Num& x, const Num& t) { return oracle::abs(x - t); }, -2, 2);
  const auto smooth = [](double beta) {
    return [beta](const Num& x, const Num& t) {
      const Num d = oracle::abs(x - t);
      if (beta == 0) return d;
      return d.value < beta ? d * d * oracle::rounded_constant(0.5 / beta) : d - oracle::rounded_constant(0.5 * beta);
    };
  };
  Entry& smooth_entry = element_loss(
      entries, "smooth_l1_loss",
      [](const Tensor& x, const Tensor& t, Reduction r) { return smooth_l1_loss(x, t, {.beta = 0.7, .reduction = r}); },
      smooth(0.7), -2, 2);
  for (double beta : {1.0, 0.0})
    smooth_entry.add(
        fmt::format("beta {}", beta), {uniform({3, 5}, -2, 2, 1), uniform({3, 5}, -2, 2, 2)},
        [=](const Tensors& x) { return smooth_l1_loss(x[0], x[1], {.beta = beta}); },
        [=](const Arrays& x) { return reduced(oracle::zip(x[0], x[1], smooth(beta)), Reduction::mean); });
  smooth_entry.error("a negative beta", [] { smooth_l1_loss(ones({3}), ones({3}), {.beta = -1}); });

  Entry& binary = element_loss(
      entries, "binary_cross_entropy_with_logits",
      [](const Tensor& x, const Tensor& t, Reduction r) {
        return binary_cross_entropy_with_logits(x, t, {.reduction = r});
      },
      [](const Num& x, const Num& t) { return binary_cross_entropy(x, t, 1.0); }, 0, 1);
  binary.add(
      "weights",
      {uniform({3, 5}, -4, 4, 1), uniform({3, 5}, 0, 1, 2), uniform({3, 1}, 0.5, 2, 3), uniform({5}, 0.5, 2, 4)},
      [](const Tensors& x) {
        return binary_cross_entropy_with_logits(x[0], x[1], {.weight = x[2], .pos_weight = x[3]});
      },
      [](const Arrays& x) {
        const Array weight = oracle::broadcast(x[2], x[0].shape), positive = oracle::broadcast(x[3], x[0].shape);
        Array y(x[0].shape, x[0].dtype);
        for (std::size_t i = 0; i < y.values.size(); ++i)
          y.values[i] = binary_cross_entropy(x[0].values[i], x[1].values[i], positive.values[i]) * weight.values[i];
        return reduced(y, Reduction::mean);
      });
  binary
      .add(
          "logits far from 0",
          {from_vector(std::vector<double>{-60000, 60000, -300, 300}), from_vector(std::vector<double>{1, 0, 0, 1})},
          [](const Tensors& x) { return binary_cross_entropy_with_logits(x[0], x[1], {.reduction = Reduction::none}); },
          [](const Arrays& x) {
            return oracle::zip(x[0], x[1], [](const Num& v, const Num& t) { return binary_cross_entropy(v, t, 1.0); });
          })
      .smooth = false;
  binary.error("a weight that does not broadcast",
               [] { binary_cross_entropy_with_logits(ones({3}), ones({3}), {.weight = ones({2})}); });
}

// --- of classes --------------------------------------------------------------------------------------------

struct Classes {
  bool weighted = false;           // by an input, which has a gradient
  std::vector<double> fixed = {};  // weights that have none: halves hold them exactly
  double smoothing = 0;
  std::int64_t ignore = -100;
  Reduction reduction = Reduction::mean;
};

// From log-probabilities [N, C, *] and class indices [N, *].
Array indexed_loss(const Array& log_p, const Array& target, const Array* weight, const Classes& o) {
  Array losses(target.shape, log_p.dtype);
  Line shares;
  const auto of_class = [&](const Shape& at, std::int64_t c) {
    Shape index = at;
    index.insert(1, c);
    return weight ? -log_p[index] * (*weight)[{c}] : -log_p[index];
  };
  for (const Shape& at : oracle::indices(target.shape)) {
    const std::int64_t c = target.integer(at);
    if (c == o.ignore) continue;
    Num loss = of_class(at, c);
    if (o.smoothing > 0) {
      Line all;
      for (std::int64_t k = 0; k < log_p.size(1); ++k) all.push_back(of_class(at, k));
      loss = oracle::rounded_constant(1 - o.smoothing) * loss +
             oracle::rounded_constant(o.smoothing / static_cast<double>(log_p.size(1))) * oracle::total(all);
    }
    losses[at] = loss;
    shares.push_back(weight ? (*weight)[{c}] : Num(1));
  }
  if (o.reduction != Reduction::mean) return reduced(losses, o.reduction);
  return Array({}, losses.dtype, {oracle::total(losses.values) / oracle::total(shares)});
}

// ... and a probability for each class.
Array soft_loss(const Array& log_p, const Array& target, const Array* weight, const Classes& o) {
  Shape shape = log_p.shape;
  shape.erase(1);
  Array losses(shape, log_p.dtype);
  for (const Shape& at : oracle::indices(shape)) {
    Line terms;
    for (std::int64_t c = 0; c < log_p.size(1); ++c) {
      Shape index = at;
      index.insert(1, c);
      Num p = target[index];
      if (o.smoothing > 0)
        p = oracle::rounded_constant(1 - o.smoothing) * p +
            oracle::rounded_constant(o.smoothing / static_cast<double>(log_p.size(1)));
      terms.push_back(-p * log_p[index] * (weight ? (*weight)[{c}] : Num(1)));
    }
    losses[at] = oracle::total(terms);
  }
  return reduced(losses, o.reduction);
}

Array constants(const std::vector<double>& values, DType dtype) {
  Array y({static_cast<std::int64_t>(values.size())}, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) y.values[i] = Num(values[i]);
  return y;
}

// The weight among the inputs of the op and of the oracle; undefined and null without one.
Tensor weight_of(const Tensors& x, const Classes& o) {
  if (x.size() > 2) return x[2];
  return o.fixed.empty() ? Tensor() : from_vector(o.fixed).to(x[0].dtype()).to(x[0].device());
}
const Array* weight_of(const Arrays& x, const Array& fixed) {
  if (x.size() > 2) return &x[2];
  return fixed.values.empty() ? nullptr : &fixed;
}

// What both losses of classes are tried with: logits or log-probabilities, and targets some of which are
// ignored.
struct ClassCase {
  std::string name;
  Shape scores;
  Classes options;
};

std::vector<ClassCase> class_cases() {
  std::vector<ClassCase> cases;
  for (Reduction reduction : kReductions) {
    cases.push_back({fmt::format("{}", name_of(reduction)), {5, 3}, {.reduction = reduction}});
    cases.push_back({fmt::format("pixels, {}", name_of(reduction)), {2, 3, 2, 3}, {.reduction = reduction}});
    cases.push_back(
        {fmt::format("weights, {}", name_of(reduction)), {5, 3}, {.weighted = true, .reduction = reduction}});
    cases.push_back({fmt::format("one class ignored, {}", name_of(reduction)),
                     {7, 3},
                     {.weighted = true, .ignore = 1, .reduction = reduction}});
    cases.push_back({fmt::format("weights without a gradient, one class ignored, {}", name_of(reduction)),
                     {4, 3, 5},
                     {.fixed = {0.5, 2, 1.25}, .ignore = 2, .reduction = reduction}});
  }
  cases.push_back({"more classes than a vector", {4, 67}, {}});
  cases.push_back({"one class", {3, 1}, {}});
  return cases;
}

Tensors class_inputs(const ClassCase& c) {
  Shape target = c.scores;
  target.erase(1);
  Tensors inputs = {uniform(c.scores, -4, 4, 1), integers(target, 0, c.scores[1], 2)};
  if (c.options.weighted) inputs.push_back(uniform({c.scores[1]}, 0.5, 2, 3));
  return inputs;
}

void register_class_losses(Entries& entries) {
  Entry& nll = make_entry(entries, "nll_loss");
  Entry cross{.name = "cross_entropy", .cases = {}, .errors = {}};
  const auto log_softmax_of = [](const Array& x) { return oracle::along(x, 1, oracle::log_softmax); };
  const auto smoothed = [](ClassCase c, double smoothing) {
    c.name += ", smoothed";
    c.options.smoothing = smoothing;
    return c;
  };
  const auto add_cross = [&](const ClassCase& c) {
    cross.add(
        c.name, class_inputs(c),
        [o = c.options](const Tensors& x) {
          return cross_entropy(x[0], x[1],
                               {.weight = weight_of(x, o),
                                .label_smoothing = o.smoothing,
                                .ignore_index = o.ignore,
                                .reduction = o.reduction});
        },
        [=, o = c.options](const Arrays& x) {
          return indexed_loss(log_softmax_of(x[0]), x[1], weight_of(x, constants(o.fixed, x[0].dtype)), o);
        });
    Tensors soft = class_inputs(c);
    soft[1] = uniform(c.scores, 0, 1, 2);
    cross.add(
        c.name + ", probabilities", soft,
        [o = c.options](const Tensors& x) {
          return cross_entropy(x[0], x[1],
                               {.weight = weight_of(x, o), .label_smoothing = o.smoothing, .reduction = o.reduction});
        },
        [=, o = c.options](const Arrays& x) {
          return soft_loss(log_softmax_of(x[0]), x[1], weight_of(x, constants(o.fixed, x[0].dtype)), o);
        });
  };
  for (const ClassCase& c : class_cases()) {
    nll.add(
        c.name, class_inputs(c),
        [o = c.options](const Tensors& x) {
          return nll_loss(x[0], x[1], {.weight = weight_of(x, o), .ignore_index = o.ignore, .reduction = o.reduction});
        },
        [o = c.options](const Arrays& x) {
          return indexed_loss(x[0], x[1], weight_of(x, constants(o.fixed, x[0].dtype)), o);
        });
    add_cross(c);
    add_cross(smoothed(c, 0.1));
  }
  const auto errors = [](Entry& entry, const std::function<void(const Tensor&, const Tensor&, const Tensor&)>& loss) {
    entry.error("a class out of range", [loss] { loss(ones({2, 3}), full({2}, 3, i64), {}); });
    entry.error("targets of another shape", [loss] { loss(ones({2, 3}), zeros({3}, i64), {}); });
    entry.error("a vector of scores", [loss] { loss(ones({3}), zeros({}, i64), {}); });
    entry.error("weights for other classes", [loss] { loss(ones({2, 3}), zeros({2}, i64), ones({2})); });
    entry.error("integer scores", [loss] { loss(ones({2, 3}, i64), zeros({2}, i64), {}); });
  };
  errors(nll, [](const Tensor& x, const Tensor& t, const Tensor& w) { nll_loss(x, t, {.weight = w}); });
  errors(cross, [](const Tensor& x, const Tensor& t, const Tensor& w) { cross_entropy(x, t, {.weight = w}); });
  cross.error("a smoothing above 1", [] { cross_entropy(ones({2, 3}), zeros({2}, i64), {.label_smoothing = 1.5}); });
  cross.error("probabilities of another shape", [] { cross_entropy(ones({2, 3}), ones({2, 2})); });
  entries.push_back(std::move(cross));
}

// --- dropout -----------------------------------------------------------------------------------------------

// Which elements stay, drawn as the seam says: element i has lane i % 4 of counter i / 4.
bool stays(std::uint64_t seed, std::size_t i, double probability) {
  return static_cast<double>(random_block(seed, i / 4).lane[i % 4]) * 0x1p-32 < probability;
}

void register_dropout(Entries& entries) {
  Entry& entry = make_entry(entries, "dropout");
  for (double p : {0.5, 0.25, 0.0, 1.0})
    for (const Shape& shape : {Shape{3, 5}, Shape{0, 3}, Shape{2, 3, 2, 3}, Shape{67, 33}})
      entry.add(
          fmt::format("{} p = {}", shape.str(), p), {uniform(shape)},
          [p](const Tensors& x) {
            manual_seed(7);
            return dropout(x[0], p, true);
          },
          [p](const Arrays& x) {
            Array y = x[0];
            for (std::size_t i = 0; i < y.values.size(); ++i)
              y.values[i] = p == 0               ? x[0].values[i]
                            : stays(7, i, 1 - p) ? x[0].values[i] * oracle::rounded_constant(1 / (1 - p))
                                                 : Num(0);
            return y;
          });
  entry.add(
      "evaluation", {uniform({3, 5})}, [](const Tensors& x) { return dropout(x[0], 0.5, false); },
      [](const Arrays& x) { return x[0]; });
  entry.error("a probability above 1", [] { dropout(ones({3}), 1.5); });
  entry.error("integers", [] { dropout(arange(3), 0.5); });
}

}  // namespace

void register_losses(Entries& entries) {
  register_element_losses(entries);
  register_class_losses(entries);
  register_dropout(entries);
}

}  // namespace halfgrad::testing
