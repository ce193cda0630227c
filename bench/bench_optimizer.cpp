// Optimizer steps over 10 million parameters, in nanoseconds per parameter and GB/s: in mixed precision, with separate
// and with flat masters, and in f32; beside the same scheme made of tensor ops, and a plain copy and a pass that
// rewrites memory in place, which move as many bytes.
//
//   bench_optimizer [--threads N] [--only TEXT] [--csv FILE]
//
// A step in mixed precision is two passes: one over the gradients looks for inf and NaN and adds up their norm, as
// the step may have to be skipped; the other unscales, clips, updates master and state, and rounds. In f32 there is
// only the second.

#include "bench/peers.h"
#include "bench/table.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"

using namespace halfgrad;
using bench::number;

namespace {

constexpr double kLossScale = 1024, kMaxNorm = 1, kLearningRate = 1e-6, kWeightDecay = 0.01;
constexpr std::int64_t kTensors = 10, kSide = 1000;
constexpr double kParameters = kTensors * kSide * kSide;

/// The state that separate ops keep for one parameter.
struct State {
  Tensor master, first, second;
  double steps = 0;
};

struct Algorithm {
  const char* name;
  optim::OptimizerFactory make;
  int states;  ///< f32 numbers per parameter, besides the master
  /// The formula in tensor ops: changes s from the unscaled f32 gradient.
  void (*update)(State& s, const Tensor& g);
};

void adamw(State& s, const Tensor& g) {
  constexpr double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  ++s.steps;
  s.master.mul_(1 - kLearningRate * kWeightDecay);
  s.first.mul_(beta1).add_(g, 1 - beta1);
  s.second.mul_(beta2).add_(square(g), 1 - beta2);
  const Tensor denominator = sqrt(s.second / (1 - std::pow(beta2, s.steps))) + eps;
  s.master.add_(s.first / denominator, -kLearningRate / (1 - std::pow(beta1, s.steps)));
}

void sgd(State& s, const Tensor& g) {
  s.first.mul_(0.9).add_(g + kWeightDecay * s.master);
  s.master.add_(s.first, -kLearningRate);
}

void rmsprop(State& s, const Tensor& g) {
  constexpr double alpha = 0.99, eps = 1e-8;
  const Tensor decayed = g + kWeightDecay * s.master;
  s.second.mul_(alpha).add_(square(decayed), 1 - alpha);
  s.master.add_(decayed / (sqrt(s.second) + eps), -kLearningRate);
}

const std::vector<Algorithm> kAlgorithms = {
    {"AdamW", optim::adamw({.lr = kLearningRate, .weight_decay = kWeightDecay}), 2, adamw},
    {"SGD momentum", optim::sgd({.lr = kLearningRate, .momentum = 0.9, .weight_decay = kWeightDecay}), 1, sgd},
    {"RMSprop", optim::rmsprop({.lr = kLearningRate, .weight_decay = kWeightDecay}), 1, rmsprop},
};

Tensors parameters(DType dtype) {
  Tensors params;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    params.push_back(randn({kSide, kSide}, dtype).requires_grad_());
    params.back().set_grad(randn({kSide, kSide}, dtype));
  }
  return params;
}

/// Both passes of MixedPrecision (callbacks/mixed_precision.cpp); throws Error if the step had to be skipped.
bench::Candidate mixed_precision(const Algorithm& algorithm, bool flat) {
  const std::shared_ptr<optim::Optimizer> optimizer = algorithm.make({{.params = parameters(f16)}});
  optimizer->use_masters(flat);
  const auto scaler = std::make_shared<optim::GradScaler>(LossScaler{.scale = kLossScale, .dynamic = false});
  return [optimizer, scaler] {
    check(optimizer->step({.scaler = scaler.get(), .clip = kMaxNorm}), "bench_optimizer: a gradient is not finite");
  };
}

bench::Candidate single_precision(const Algorithm& algorithm) {
  const std::shared_ptr<optim::Optimizer> optimizer = algorithm.make({{.params = parameters(f32)}});
  return [optimizer] { optimizer->step(); };
}

/// The scheme of mixed precision with one tensor op for each of its operations.
bench::Candidate separate_ops(const Algorithm& algorithm) {
  std::vector<State> states;
  const Tensors params = parameters(f16);
  for (const Tensor& param : params)
    states.push_back({param.detach().to(f32), zeros(param.shape()), zeros(param.shape())});
  return [update = algorithm.update, params, states]() mutable {
    const NoGrad guard;
    Tensors grads;
    double sum_of_squares = 0;
    for (const Tensor& param : params) {
      grads.push_back(cast(param.grad(), f32));
      check(all(isfinite(grads.back())).item<bool>(), "bench_optimizer: a gradient is not finite");
      sum_of_squares += sum(square(grads.back())).item();
    }
    const double factor = optim::clip_factor(std::sqrt(sum_of_squares) / kLossScale, kMaxNorm) / kLossScale;
    for (std::size_t i = 0; i < params.size(); ++i) {
      update(states[i], grads[i].mul_(factor));
      Tensor param = params[i];
      param.copy_(states[i].master);
    }
  };
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "Optimizer steps over 10 million parameters.");
  bench::print_machine();
  bench::Table table({"optimizer", "ns/param", "B/param", "GB/s", "of copy", "of rewrite", "to f32", "to masters"},
                     options, 30);
  for (const Algorithm& algorithm : kAlgorithms) {
    if (!options.wants(algorithm.name)) continue;
    // Read: the gradient, in mixed precision twice; read and written: master and state; written: the f16 parameter.
    const double master_and_state = 8 * (1 + algorithm.states);
    const double mixed_bytes = 2 + 2 + master_and_state + 2, single_bytes = 4 + master_and_state;
    const std::vector<double> seconds = bench::median_seconds(
        {mixed_precision(algorithm, false), mixed_precision(algorithm, true), single_precision(algorithm),
         separate_ops(algorithm), bench::peers::copy(mixed_bytes * kParameters),
         bench::peers::rewrite(mixed_bytes * kParameters)});
    const auto add = [&](const char* scheme, double time, double bytes) {
      const auto speed_to = [&](std::size_t peer) {
        return bench::percent(bytes / time / (mixed_bytes / seconds[peer]));
      };
      table.add({fmt::format("{} {}", algorithm.name, scheme), number(1e9 * time / kParameters, 2), number(bytes, 0),
                 number(1e-9 * bytes * kParameters / time), speed_to(4), speed_to(5), number(time / seconds[2], 2),
                 number(time / seconds[0], 2)});
    };
    add("masters", seconds[0], mixed_bytes);
    add("flat masters", seconds[1], mixed_bytes);
    add("f32", seconds[2], single_bytes);
    add("separate ops", seconds[3], mixed_bytes);
    add("(copy)", seconds[4], mixed_bytes);
    add("(rewrite in place)", seconds[5], mixed_bytes);
  }
}
