// MixedPrecision against a model of it in f64, written down once more by hand: which steps are taken, with
// which scale, and where the weights go.

#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

constexpr int kWeights = 4;
const std::vector<double> start = {1.0, -0.5, 0.25, 2.0};

/// Its gradient is the target of the batch, exactly: loss = sum of weight * target.
struct Weights : nn::Module {
  Tensor weight = from_vector(std::vector<float>(start.begin(), start.end())).requires_grad_();
  Tensor forward(const Tensor& x) override { return x * weight; }
  void visit(nn::Visitor& v) override { v.parameter("weight", weight); }
};

// Multiples of 2^-6 below 1/2, so that scaled gradients are exact in f16 at every scale up to 2^16.
std::vector<std::vector<double>> gradients(std::size_t batches) {
  Generator generator(7);
  std::vector<std::vector<double>> all(batches, std::vector<double>(kWeights));
  for (auto& g : all)
    for (double& v : g) v = (static_cast<double>(generator.next_below(63)) - 31) / 64;
  return all;
}

enum class Opt { sgd, adamw };

struct Case {
  Opt opt;
  bool dynamic;
  double loss_scale;
  std::optional<double> clip;
  double max_scale = 16777216;
  std::set<std::int64_t> overflows;
};

struct Outcome {
  std::vector<double> weights, m, v;  // v is Adam's
  double scale;
  std::int64_t noskip, skipped;
};

constexpr double lr = 0.125, momentum = 0.9, beta2 = 0.99, eps = 1e-8, wd = 0.0625;
constexpr int max_noskip = 3;

Outcome by_hand(const Case& c, const std::vector<std::vector<double>>& batches) {
  std::vector<double> w = start, m(kWeights), v(kWeights);
  double scale = c.loss_scale;
  std::int64_t noskip = 0, skipped = 0;
  int t = 0;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    if (c.overflows.contains(static_cast<std::int64_t>(b))) {
      ++skipped;
      if (c.dynamic) {
        scale = scale / 2 < 1 ? 1 : scale / 2;
        noskip = 0;
      }
      continue;
    }
    std::vector<double> g = batches[b];
    double norm = 0;
    for (const double x : g) norm += x * x;
    norm = std::sqrt(norm);
    if (c.clip && norm > *c.clip)
      for (double& x : g) x *= *c.clip / norm;
    ++t;
    for (int i = 0; i < kWeights; ++i) {
      if (c.opt == Opt::sgd) {
        const double d = g[i] + wd * w[i];
        m[i] = t == 1 ? d : momentum * m[i] + d;
        w[i] -= lr * m[i];
      } else {
        w[i] -= lr * wd * w[i];
        m[i] = momentum * m[i] + (1 - momentum) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        w[i] -= lr * (m[i] / (1 - std::pow(momentum, t))) / (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps);
      }
    }
    if (c.dynamic && ++noskip == max_noskip) {
      noskip = 0;
      if (2 * scale <= c.max_scale) scale *= 2;
    }
  }
  return {w, m, v, scale, noskip, skipped};
}

void check_case(const Case& c, bool flat) {
  const auto batches = gradients(12);
  std::vector<float> targets;
  for (const auto& g : batches) targets.insert(targets.end(), g.begin(), g.end());
  const std::int64_t n = static_cast<std::int64_t>(batches.size());
  data::DataLoader loader(data::TensorDataset(ones({n, kWeights}), from_vector(targets, {n, kWeights})),
                          {.batch_size = 1, .prefetch = 0});
  Weights model;
  const LossFn loss = [](const Tensor& output, const Tensor& target) { return sum(output * target); };
  const optim::OptimizerFactory opt =
      c.opt == Opt::sgd ? optim::sgd({.lr = lr, .momentum = momentum, .weight_decay = wd})
                        : optim::adamw({.lr = lr, .beta1 = momentum, .beta2 = beta2, .eps = eps, .weight_decay = wd});
  Learner learn({loader, {}}, model, loss,
                {.opt = opt, .callbacks = {std::make_shared<Overflow>(c.overflows)}, .silent = true});
  learn.to_fp16({.loss_scale = c.loss_scale,
                 .max_noskip = max_noskip,
                 .dynamic = c.dynamic,
                 .clip = c.clip,
                 .flat_master = flat,
                 .max_scale = c.max_scale});
  learn.fit(1);

  const Outcome expected = by_hand(c, batches);
  const LossScaler scaler = learn.mixed_precision()->scaler();
  CHECK(scaler.scale == expected.scale);
  CHECK(scaler.skipped == expected.skipped);
  if (c.dynamic) CHECK(scaler.noskip == expected.noskip);
  const optim::Entry& entry = learn.optimizer().groups()[0].entries[0];
  CHECK(entry.steps() == n - expected.skipped);
  // Some 20 operations in f32 per step, on numbers around 1: the error stays below 12 * 20 * 2^-24 < 2e-5.
  const auto check_near = [](const Tensor& found, const std::vector<double>& wanted) {
    const std::vector<double> values = found.to_vector<double>();
    for (int i = 0; i < kWeights; ++i) CHECK(std::abs(values[i] - wanted[i]) < 2e-5);
  };
  check_near(entry.master, expected.weights);
  if (entry.steps() == 0) {
    CHECK(entry.state.empty());
  } else if (c.opt == Opt::sgd) {
    REQUIRE(entry.state.size() == 1);
    check_near(entry.state.at("momentum_buffer"), expected.m);
  } else {
    REQUIRE(entry.state.size() == 2);
    check_near(entry.state.at("exp_avg"), expected.m);
    check_near(entry.state.at("exp_avg_sq"), expected.v);
  }
  CHECK(model.weight.dtype() == f16);
  CHECK(model.weight.to_vector<float>() == entry.master.to(f16).to_vector<float>());
}

}  // namespace

TEST_CASE("the state machine and the weights follow the model by hand") {
  const std::vector<std::set<std::int64_t>> patterns = {
      {}, {0}, {5}, {11}, {0, 11}, {2, 3, 4, 5}, {0, 1, 2}, {3, 7}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  for (const auto& overflows : patterns)
    for (const Opt opt : {Opt::sgd, Opt::adamw})
      for (const bool flat : {false, true})
        for (const std::optional<double> clip : {std::optional<double>(), std::optional<double>(0.25)}) {
          CAPTURE(overflows.size());
          CAPTURE(flat);
          CAPTURE(clip.has_value());
          CAPTURE(static_cast<int>(opt));
          check_case({.opt = opt, .dynamic = true, .loss_scale = 1024, .clip = clip, .overflows = overflows}, flat);
          // at the floor, and where doubling meets the cap
          check_case({.opt = opt, .dynamic = true, .loss_scale = 2, .clip = clip, .overflows = overflows}, flat);
          check_case({.opt = opt, .dynamic = true, .loss_scale = 1, .clip = clip, .overflows = overflows}, flat);
          check_case(
              {.opt = opt, .dynamic = true, .loss_scale = 64, .clip = clip, .max_scale = 128, .overflows = overflows},
              flat);
          // static scales are checked as well, those at and below 1 too
          for (const double scale : {512.0, 1.0, 0.5})
            check_case({.opt = opt, .dynamic = false, .loss_scale = scale, .clip = clip, .overflows = overflows}, flat);
        }
}
