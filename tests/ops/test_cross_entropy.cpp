// Cross entropy of class indices in one pass, and its gradient in another. test_loss.cpp has what it is.

#include <cmath>
#include <limits>

#include "engine/cpu/parallel.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/join.h"
#include "engine/ops/loss.h"
#include "engine/ops/reduce.h"
#include "engine/ops/softmax.h"
#include "engine/random.h"
#include "tests/engine/kernel_testing.h"
#include "tests/nn/expect.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};

// The same from its definition, by other ops.
Tensor composed(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& o) {
  const Tensor log_p = log_softmax(logits, 1), ignored = target == o.ignore_index;
  const Tensor index = where(ignored, 0, target);
  Shape shape(static_cast<std::size_t>(logits.rank() - 1), 1);
  shape[0] = logits.size(1);
  const Tensor weight = o.weight.defined() ? o.weight.to(logits.dtype()) : ones({logits.size(1)}, logits.dtype());
  const Tensor share = where(ignored, 0, index_select(weight, 0, index.flatten()).reshape(target.shape()));
  const Tensor of_target = -gather(log_p, 1, index.unsqueeze(1)).squeeze(1) * share;
  const Tensor of_all = -sum(log_p * weight.reshape(shape), {1}) / static_cast<double>(logits.size(1));
  const Tensor smoothed = (1 - o.label_smoothing) * of_target + o.label_smoothing * of_all;
  const Tensor loss = where(ignored, 0, o.label_smoothing > 0 ? smoothed : of_target);
  if (o.reduction == Reduction::none) return loss;
  return o.reduction == Reduction::sum ? sum(loss) : sum(loss) / sum(share);
}

struct Result {
  Tensor loss, gradient;
};
template <class Loss>
Result run(Loss loss, const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  const Tensor x = Tensor(logits.detach()).requires_grad_();
  const Tensor y = loss(x, target, options);
  const Tensor dy =
      y.rank() == 0 ? full({}, 0.75, y.dtype()) : (arange(y.numel(), f32).reshape(y.shape()) * 0.125 - 1).to(y.dtype());
  return {y, grad(y, {x}, dy)[0]};
}
Result run(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  return run(static_cast<Tensor (*)(const Tensor&, const Tensor&, const CrossEntropyOptions&)>(cross_entropy), logits,
             target, options);
}

// Within `units` roundoffs of the arithmetic, times `size`, and the rounding to what is stored.
void check_close(const Tensor& found, const Tensor& exact, double units, double size) {
  REQUIRE(found.shape() == exact.shape());
  const DType t = found.dtype();
  const double unit = t == f64 ? 0x1p-53 : 0x1p-24;
  const std::vector<double> a = found.to_vector<double>(), b = exact.to_vector<double>();
  std::string wrong;
  for (std::size_t i = 0; i < a.size() && wrong.empty(); ++i) {
    const double stored = t == f16 ? std::max(0x1p-11 * std::abs(b[i]), 0x1p-25) : 0,
                 bound = units * unit * size + 1.001 * stored;
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::abs(a[i] - b[i]) <= bound))
      wrong = fmt::format("element {} is {:.9g}, expected {:.9g} within {:.3g}", i, a[i], b[i], bound);
  }
  CHECK_MESSAGE(wrong.empty(), wrong);
}

std::vector<CrossEntropyOptions> all_options(std::int64_t classes) {
  manual_seed(2);
  const Tensor weight = rand({classes}) + 0.5;
  std::vector<CrossEntropyOptions> all;
  for (const Reduction reduction : kReductions)
    for (const double smoothing : {0.0, 0.25, 1.0})
      for (const Tensor& w : {Tensor(), weight, weight.to(f64), stack({weight, weight}, 1).select(1, 0)})
        all.push_back({.weight = w, .label_smoothing = smoothing, .ignore_index = 1, .reduction = reduction});
  return all;
}

}  // namespace

// |x| <= 4, so log_p lies in [-8 - log(n), 0], that is within 16. The exponentials of a line are wrong by 3 units and added
// in at most 38 + log2(n / 1024) steps (pairwise_sum), which a logarithm turns from relative into absolute: 50 units. Two
// subtractions from numbers of up to 16 make 32 more, so log_p is wrong by less than 100 units, p = e^log_p by 100 p. A loss
// is weight (at most 1.5) times that, or a mean over all classes of such terms, summed in the same way: 150 + 50 * 16 units;
// a total over at most 24 positions has another 24 additions: 24 * (1000 + 24 * 24) < 40000 units.
// A gradient is dy times weight times at most 2, each wrong by 100 units: with |dy| <= 2, 1000 units. A mean divides both.
TEST_CASE("cross_entropy and its gradient in one pass agree with other ops, in every layout") {
  for (const std::int64_t n : {2, 3, 10, 16, 17, 67, 1025})
    for (const DType t : {f16, f32, f64}) {
      manual_seed(1);
      const Tensor x = (rand({2, n, 3, 4}, f64) * 8 - 4).to(t), target = randint(0, n, {2, 3, 4});
      const Tensor rows = x.permute({0, 2, 3, 1}).reshape({24, n}), index = target.flatten();
      const std::vector<std::pair<Tensor, Tensor>> inputs = {
          {x, target},
          {x.channels_last(), target.transpose(0, 2).contiguous().transpose(0, 2)},
          {x.permute({3, 1, 0, 2}), target.permute({2, 0, 1})},
          {rows, index},
          {rows.t().contiguous().t(), index},
          {rows.slice(0, 1, 24, 2), index.slice(0, 1, 24, 2)}};
      for (const CrossEntropyOptions& options : all_options(n))
        for (const auto& input : inputs) {
          const Tensor &logits = input.first, &classes = input.second;
          CAPTURE(n);
          CAPTURE(logits.strides().str());
          CAPTURE(options.label_smoothing);
          const Result found = run(logits, classes, options), exact = run(composed, logits.to(f64), classes, options);
          CHECK(found.loss.dtype() == t);
          CHECK(found.gradient.dtype() == t);
          check_close(found.loss, exact.loss, options.reduction == Reduction::sum ? 40000 : 2000, 1);
          check_close(found.gradient, exact.gradient, 1000, 1);
        }
    }
}

TEST_CASE("infinities and NaN reach the losses and gradients of their own positions, as in other ops") {
  const std::vector<double> special = {0, -kInf, 1, kInf, NAN, 2, -3};
  std::vector<double> values;
  for (const double a : special)
    for (const double b : special)
      for (const double c : special) values.insert(values.end(), {a, b, c});
  const auto rows = static_cast<std::int64_t>(values.size() / 3);
  for (const DType t : {f16, f32, f64})
    for (std::int64_t target = 0; target < 3; ++target)
      for (const double smoothing : {0.0, 0.5}) {
        const Tensor x = from_vector(values, {rows, 3}).to(t), index = full({rows}, static_cast<double>(target), i64);
        const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = Reduction::none};
        const Result found = run(x, index, options), exact = run(composed, x.to(f64), index, options);
        check_close(found.loss, exact.loss, 100, 16);
        check_close(found.gradient, exact.gradient, 300, 64);
      }
}

TEST_CASE("an ignored position has no gradient, whatever its logits are") {
  const Tensor target = from_vector(std::vector<std::int64_t>{2, -100, 1});
  for (const DType t : {f16, f32, f64}) {
    const Tensor x = from_vector(std::vector<double>{1, 2, 3, NAN, kInf, -kInf, 0, 0, 0}, {3, 3}).to(t);
    const Result one = run(x, target, {}), none = run(x, full({3}, -100, i64), {});
    CHECK(std::isfinite(one.loss.item()));
    check_values(one.gradient[1], {0, 0, 0});
    CHECK(std::isnan(none.loss.item()));
    check_values(none.gradient, std::vector<double>(9, 0));
    check_values(run(x, full({3}, -100, i64), {.reduction = Reduction::sum}).loss, {0});
  }
}

TEST_CASE("cross_entropy of no positions, and of no classes") {
  const Tensor nothing = zeros({0}, i64);
  CHECK(std::isnan(run(zeros({0, 3}), nothing, {}).loss.item()));
  CHECK(run(zeros({0, 3}), nothing, {.reduction = Reduction::sum}).loss.item() == 0);
  CHECK(run(zeros({0, 3}), nothing, {.reduction = Reduction::none}).loss.shape() == Shape{0});
  CHECK(run(zeros({0, 3}), nothing, {}).gradient.shape() == Shape{0, 3});
  CHECK(run(zeros({2, 3, 0}), zeros({2, 0}, i64), {}).gradient.shape() == Shape{2, 3, 0});
  CHECK(std::isnan(run(zeros({0, 0}), nothing, {}).loss.item()));
  CHECK(has(error_of([] {
              cross_entropy(zeros({2, 0}), full({2}, -100, i64));
            }),
            "cross_entropy: the input is f32 [2, 0]"));
}

TEST_CASE("large logits keep the digits of their differences") {
  const Tensor x = tensor({{60000, 59999, 59990}});
  const double p = 1 / (1 + std::exp(-1.0) + std::exp(-10.0));
  const Result found = run(x, zeros({1}, i64), {.reduction = Reduction::sum});
  CHECK(std::abs(found.loss.item() + std::log(p)) < 1e-6);
  CHECK(std::abs(found.gradient[0][0].item() - 0.75 * (p - 1)) < 1e-6);
}

TEST_CASE("cross_entropy has the same bits with every instruction set and any number of threads") {
  const int threads = cpu::num_threads();
  for (const DType t : {f16, f32}) {
    manual_seed(3);
    const Tensor rows = randn({300, 1000}, t), images = randn({4, 21, 64, 63}, t).channels_last(),
                 many = randn({3, 50001}, t), few = randn({77, 10}, t);
    for (const Tensor& x : {rows, images, many, few}) {
      Shape shape = x.shape();
      shape.erase(1);
      const Tensor target = randint(0, x.size(1), shape);
      const CrossEntropyOptions options{.weight = rand({x.size(1)}), .label_smoothing = 0.1};
      const Result expected = run(x, target, options);
      for_each_isa([&](const char* isa) {
        CAPTURE(isa);
        for (const int n : {1, 2}) {
          cpu::set_num_threads(n);
          const Result found = run(x, target, options);
          CHECK(same_bits(found.loss, expected.loss));
          CHECK(same_bits(found.gradient, expected.gradient));
        }
      });
      cpu::set_num_threads(threads);
    }
  }
}

TEST_CASE("f16 logits are not widened in memory") {
  const Tensor x = Tensor(zeros({64, 4096}, f16)).requires_grad_(), target = zeros({64}, i64);
  const auto bytes = static_cast<std::size_t>(x.numel()) * 2;
  run(x, target, {});
  const std::size_t live = memory_stats().live;
  reset_peak_memory();
  grad(cross_entropy(x, target), {x});
  CHECK(memory_stats().peak - live < bytes + bytes / 8);  // the gradient, and some numbers for each position
}

TEST_CASE("what cross_entropy keeps for its gradient must not change") {
  const auto message = [](auto change) {
    Tensor x = Tensor(randn({4, 3})).requires_grad_(), target = zeros({4}, i64), weight = ones({3});
    const Tensor loss = cross_entropy(x, target, {.weight = weight});
    {
      NoGrad guard;
      change(x, target, weight);
    }
    return error_of([&] { loss.backward(); });
  };
  CHECK(message([](auto&...) {}).empty());
  for (const int which : {0, 1, 2})
    CHECK(has(message([&](Tensor& x, Tensor& target, Tensor& weight) {
                (which == 0 ? x : which == 1 ? target : weight).fill_(1);
              }),
              "backward of cross_entropy"));
}

TEST_CASE("a class out of range is found wherever it is") {
  Tensor target = zeros({3, 4}, i64);
  target[1][2].fill_(7);
  for (const Tensor& t : {target, target.t().contiguous().t(), target.flatten().reshape({3, 4})})
    CHECK(has(error_of([&] { cross_entropy(zeros({3, 5, 4}), t); }), "the target holds 7, expected classes 0 to 4"));
  CHECK(error_of([&] { cross_entropy(zeros({3, 5, 2}), target.slice(1, 0, 4, 3)); }).empty());
  CHECK(error_of([&] { cross_entropy(zeros({3, 5, 4}), target, {.ignore_index = 7}); }).empty());
}
