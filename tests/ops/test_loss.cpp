#include "engine/ops/loss.h"

#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/random.h"
#include "tests/nn/expect.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// Cross entropy of one position from the definition, in double.
struct Position {
  std::vector<double> log_p;
  Position(const std::vector<double>& logits) {
    double total = 0;
    for (const double z : logits) total += std::exp(z);
    for (const double z : logits) log_p.push_back(z - std::log(total));
  }
  double loss(const std::vector<double>& p, const std::vector<double>& weight) const {
    double sum = 0;
    for (std::size_t c = 0; c < p.size(); ++c) sum -= weight[c] * p[c] * log_p[c];
    return sum;
  }
};

const std::vector<double> kLogits = {0.5, -1.25, 2, 0.25, 0.75, -0.5, -3, 1, 1.5};  // 3 positions of 3 classes
const std::vector<double> kWeight = {0.5, 2, 1.25};

Position position(std::size_t i) { return Position({kLogits[3 * i], kLogits[3 * i + 1], kLogits[3 * i + 2]}); }

std::vector<double> smoothed(std::size_t target, double smoothing) {
  std::vector<double> p(3, smoothing / 3);
  p[target] += 1 - smoothing;
  return p;
}

Tensor logits(DType dtype = f64) { return from_vector(kLogits, {3, 3}).to(dtype); }
Tensor weight(DType dtype = f64) { return from_vector(kWeight).to(dtype); }
Tensor classes(const std::vector<std::int64_t>& c) { return from_vector(c); }

// The gradient that backward() finds against central differences, both f64.
void check_gradient(const std::function<Tensor(const Tensor&)>& loss, const Tensor& at) {
  Tensor x = at.clone().requires_grad_();
  loss(x).backward();
  std::vector<double> expected;
  for (std::int64_t i = 0; i < at.numel(); ++i) {
    double side[2];
    for (const int sign : {0, 1}) {
      Tensor moved = at.clone();
      moved.data<double>()[i] += sign ? 1e-6 : -1e-6;
      side[sign] = loss(moved).item();
    }
    expected.push_back((side[1] - side[0]) / 2e-6);
  }
  check_values(x.grad(), expected, 1e-7);
}

}  // namespace

TEST_CASE("cross_entropy of class indices is minus the log-probability of the target") {
  const Tensor target = classes({2, 0, 1});
  const std::vector<std::size_t> t = {2, 0, 1};
  std::vector<double> each;
  double total = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    each.push_back(-position(i).log_p[t[i]]);
    total += each.back();
  }
  check_values(cross_entropy(logits(), target, {.reduction = Reduction::none}), each, 1e-12);
  check_values(cross_entropy(logits(), target, {.reduction = Reduction::sum}), {total}, 1e-12);
  check_values(cross_entropy(logits(), target), {total / 3}, 1e-12);
}

TEST_CASE("the mean over class indices divides by the weights of the targets that are not ignored") {
  const Tensor target = classes({2, -100, 1});
  const double l0 = -position(0).log_p[2] * kWeight[2], l2 = -position(2).log_p[1] * kWeight[1];
  check_values(cross_entropy(logits(), target, {.weight = weight()}), {(l0 + l2) / (kWeight[2] + kWeight[1])}, 1e-12);
  check_values(cross_entropy(logits(), target, {.weight = weight(), .reduction = Reduction::none}), {l0, 0, l2}, 1e-12);
  check_values(cross_entropy(logits(), target), {-(position(0).log_p[2] + position(2).log_p[1]) / 2}, 1e-12);
}

TEST_CASE("ignore_index may be any number, a class included") {
  const double l0 = -position(0).log_p[2], l2 = -position(2).log_p[1];
  check_values(cross_entropy(logits(), classes({2, 0, 1}), {.ignore_index = 0}), {(l0 + l2) / 2}, 1e-12);
  check_values(cross_entropy(logits(), classes({2, 7, 1}), {.ignore_index = 7}), {(l0 + l2) / 2}, 1e-12);
}

TEST_CASE("nothing but ignored targets has no mean") {
  check_values(cross_entropy(logits(), classes({-100, -100, -100})), {NAN});
}

TEST_CASE("an infinite logit at an ignored position does not reach the loss") {
  Tensor z = logits();
  z.data<double>()[3] = -INFINITY;
  check_values(cross_entropy(z, classes({2, -100, 1})), {-(position(0).log_p[2] + position(2).log_p[1]) / 2}, 1e-12);
}

TEST_CASE("label smoothing spreads its share over all classes, weighted by class") {
  const std::vector<std::size_t> t = {2, 0, 1};
  double plain = 0, weighted = 0, divisor = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    plain += position(i).loss(smoothed(t[i], 0.2), {1, 1, 1});
    // As PyTorch: the target's part takes the target's weight, the spread part each class's own.
    weighted += position(i).loss(smoothed(t[i], 0.2), kWeight);
    divisor += kWeight[t[i]];
  }
  check_values(cross_entropy(logits(), classes({2, 0, 1}), {.label_smoothing = 0.2}), {plain / 3}, 1e-12);
  check_values(cross_entropy(logits(), classes({2, 0, 1}), {.weight = weight(), .label_smoothing = 0.2}),
               {weighted / divisor}, 1e-12);
}

TEST_CASE("cross_entropy of probabilities averages over positions, whatever the weights") {
  const std::vector<double> p = {0.2, 0.3, 0.5, 1, 0, 0, 0.25, 0.25, 0.5};
  const Tensor target = from_vector(p, {3, 3});
  double plain = 0, weighted = 0, smooth = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<double> row(p.begin() + static_cast<std::ptrdiff_t>(3 * i),
                                  p.begin() + static_cast<std::ptrdiff_t>(3 * i + 3));
    plain += position(i).loss(row, {1, 1, 1});
    weighted += position(i).loss(row, kWeight);
    std::vector<double> mixed;
    for (const double v : row) mixed.push_back(0.9 * v + 0.1 / 3);
    smooth += position(i).loss(mixed, {1, 1, 1});
  }
  check_values(cross_entropy(logits(), target), {plain / 3}, 1e-12);
  check_values(cross_entropy(logits(), target, {.weight = weight()}), {weighted / 3}, 1e-12);
  check_values(cross_entropy(logits(), target, {.label_smoothing = 0.1}), {smooth / 3}, 1e-12);
  check_values(cross_entropy(logits(), target, {.reduction = Reduction::sum}), {plain}, 1e-12);
}

TEST_CASE("cross_entropy takes [N, C, d1, d2]: every position is a sample") {
  manual_seed(3);
  const Tensor z = randn({2, 4, 3, 2}, f64);
  const Tensor target = randint(0, 4, {2, 3, 2});
  const Tensor flat = z.permute({0, 2, 3, 1}).reshape({12, 4});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const CrossEntropyOptions options{.label_smoothing = 0.1, .reduction = reduction};
    check_values(cross_entropy(z, target, options), {cross_entropy(flat, target.flatten(), options).item()}, 1e-12);
  }
  CHECK(cross_entropy(z, target, {.reduction = Reduction::none}).shape() == Shape{2, 3, 2});
}

TEST_CASE("nll_loss of log-probabilities is cross_entropy of logits") {
  const Tensor z = logits(), target = classes({2, -100, 1});
  const Tensor log_p = z - log(sum(exp(z), {1}, true));
  check_values(nll_loss(log_p, target, {.weight = weight()}), {cross_entropy(z, target, {.weight = weight()}).item()},
               1e-12);
}

TEST_CASE("large logits neither overflow nor lose the loss") {
  const Tensor z = tensor({{1000, 0}, {0, 1000}});
  check_values(cross_entropy(z, classes({0, 0}), {.reduction = Reduction::none}), {0, 1000});
}

TEST_CASE("f16 losses compute in f32 and round once") {
  manual_seed(5);
  const Tensor x = randn({300, 7}, f16), y = randn({300, 7}, f16), target = randint(0, 7, {300});
  const Tensor x32 = x.to(f32), y32 = y.to(f32), bits = (y > 0).to(f16);
  const auto rounds_once = [](const Tensor& small, const Tensor& wide) {
    CHECK(small.dtype() == f16);
    CHECK(same_bits(small, wide.to(f16)));
  };
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    rounds_once(cross_entropy(x, target, {.reduction = reduction}),
                cross_entropy(x32, target, {.reduction = reduction}));
    rounds_once(mse_loss(x, y, {.reduction = reduction}), mse_loss(x32, y32, {.reduction = reduction}));
    rounds_once(l1_loss(x, y, {.reduction = reduction}), l1_loss(x32, y32, {.reduction = reduction}));
    rounds_once(smooth_l1_loss(x, y, {.reduction = reduction}), smooth_l1_loss(x32, y32, {.reduction = reduction}));
    rounds_once(binary_cross_entropy_with_logits(x, bits, {.reduction = reduction}),
                binary_cross_entropy_with_logits(x32, bits.to(f32), {.reduction = reduction}));
  }
  CHECK(cross_entropy(x32, target).dtype() == f32);
  CHECK(mse_loss(x, y32).dtype() == f32);
}

TEST_CASE("an f16 mean does not overflow on the way") {
  const Tensor x = full({1000, 10}, 200, f16);
  check_values(mse_loss(x, zeros_like(x)), {40000});
}

TEST_CASE("losses of elements follow their formulas") {
  const Tensor x = tensor({0.5, -2, 3, 0}, f64), y = tensor({1, 1, 1, 0.25}, f64);
  check_values(mse_loss(x, y, {.reduction = Reduction::none}), {0.25, 9, 4, 0.0625}, 1e-15);
  check_values(mse_loss(x, y), {13.3125 / 4}, 1e-15);
  check_values(l1_loss(x, y, {.reduction = Reduction::none}), {0.5, 3, 2, 0.25}, 1e-15);
  check_values(l1_loss(x, y), {5.75 / 4}, 1e-15);
  check_values(smooth_l1_loss(x, y, {.reduction = Reduction::none}), {0.125, 2.5, 1.5, 0.03125}, 1e-15);
  check_values(smooth_l1_loss(x, y, {.beta = 0.5, .reduction = Reduction::none}), {0.25, 2.75, 1.75, 0.0625}, 1e-15);
  check_values(smooth_l1_loss(x, y, {.beta = 0, .reduction = Reduction::sum}), {5.75}, 1e-15);
}

TEST_CASE("binary_cross_entropy_with_logits follows its definition and does not overflow") {
  const std::vector<double> x = {0.5, -2, 3, 0}, t = {1, 0, 0.25, 1}, w = {1, 2, 3, 4};
  std::vector<double> plain, weighted;
  for (std::size_t i = 0; i < 4; ++i) {
    const double s = 1 / (1 + std::exp(-x[i]));
    plain.push_back(-t[i] * std::log(s) - (1 - t[i]) * std::log(1 - s));
    weighted.push_back(w[i] * (-3 * t[i] * std::log(s) - (1 - t[i]) * std::log(1 - s)));
  }
  check_values(binary_cross_entropy_with_logits(from_vector(x), from_vector(t), {.reduction = Reduction::none}), plain,
               1e-12);
  check_values(binary_cross_entropy_with_logits(
                   from_vector(x), from_vector(t),
                   {.weight = from_vector(w), .pos_weight = tensor({3}, f64), .reduction = Reduction::none}),
               weighted, 1e-12);
  check_values(
      binary_cross_entropy_with_logits(tensor({1e4, -1e4, 1e4}), tensor({1, 0, 0}), {.reduction = Reduction::none}),
      {0, 0, 1e4});
}

TEST_CASE("gradients of the losses agree with differences") {
  const Tensor z = logits(), t = classes({2, -100, 1});
  const Tensor soft = tensor({{0.2, 0.3, 0.5}, {1, 0, 0}, {0.25, 0.25, 0.5}}, f64);
  check_gradient([&](const Tensor& x) { return cross_entropy(x, t); }, z);
  check_gradient([&](const Tensor& x) { return cross_entropy(x, t, {.weight = weight(), .label_smoothing = 0.3}); }, z);
  check_gradient([&](const Tensor& x) { return cross_entropy(x, soft, {.weight = weight(), .label_smoothing = 0.3}); },
                 z);
  check_gradient([&](const Tensor& p) { return cross_entropy(z, p); }, soft);
  check_gradient([&](const Tensor& x) { return mse_loss(x, soft); }, z);
  check_gradient([&](const Tensor& x) { return l1_loss(x, soft); }, z);
  check_gradient([&](const Tensor& x) { return smooth_l1_loss(x, soft, {.beta = 0.7}); }, z);
  check_gradient([&](const Tensor& x) { return binary_cross_entropy_with_logits(x, soft, {.pos_weight = weight()}); },
                 z);
  check_gradient([&](const Tensor& p) { return binary_cross_entropy_with_logits(z, p, {.pos_weight = weight()}); },
                 soft);
}

TEST_CASE("the gradient of cross_entropy on f16 logits is f16, and softmax minus target") {
  Tensor x = logits(f16).requires_grad_();
  cross_entropy(x, classes({2, 0, 1}), {.reduction = Reduction::sum}).backward();
  std::vector<double> expected;
  const std::vector<std::size_t> t = {2, 0, 1};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t c = 0; c < 3; ++c) expected.push_back(std::exp(position(i).log_p[c]) - (c == t[i] ? 1 : 0));
  CHECK(x.grad().dtype() == f16);
  check_values(x.grad(), expected, 0x1p-11);
}

TEST_CASE("losses say what is wrong with their arguments") {
  const Tensor z = logits(f32), t = classes({2, 0, 1});
  const auto message = [](auto f) { return error_of([&] { f(); }); };
  const auto too_large = message([&] { cross_entropy(z, classes({2, 3, 1})); });
  CHECK(has(too_large, "cross_entropy"));
  CHECK(has(too_large, "holds 3"));
  CHECK(has(too_large, "0 to 2"));
  CHECK(has(message([&] { cross_entropy(z, classes({2, -1, 1})); }), "holds -1"));
  CHECK(has(message([&] { nll_loss(z, classes({2, -1, 1})); }), "nll_loss"));
  CHECK(has(message([&] { cross_entropy(z, t.to(f32)); }), "class indices are i64"));
  CHECK(has(message([&] { cross_entropy(z, t.to(u8)); }), "u8"));
  CHECK(has(message([&] { cross_entropy(z, classes({0, 1})); }), "i64 [3]"));
  CHECK(has(message([&] { nll_loss(z, z); }), "class indices i64 [3]"));
  CHECK(has(message([&] { cross_entropy(t, t); }), "expected floats [N, C, ...]"));
  CHECK(has(message([&] { cross_entropy(z[0], t); }), "expected floats [N, C, ...]"));
  CHECK(has(message([&] { cross_entropy(z, t, {.weight = ones({2})}); }), "each of the 3 classes"));
  CHECK(has(message([&] { cross_entropy(z, t, {.weight = ones({3}, i64)}); }), "weight is i64"));
  CHECK(has(message([&] { cross_entropy(z, t, {.label_smoothing = 1.5}); }), "label_smoothing is 1.5"));
  CHECK(has(message([&] { cross_entropy(z, t, {.reduction = static_cast<Reduction>(7)}); }), "reduction 7"));
  CHECK(has(message([&] { mse_loss(zeros({3, 1}), zeros({3})); }), "[3, 1]"));
  CHECK(has(message([&] { l1_loss(zeros({3}), zeros({3}, i64)); }), "target i64 [3]"));
  CHECK(has(message([&] { smooth_l1_loss(z, z, {.beta = -1}); }), "beta is -1"));
  CHECK(has(message([&] { binary_cross_entropy_with_logits(z, zeros({3})); }), "equal shape"));
  CHECK(has(message([&] {
              binary_cross_entropy_with_logits(z, z, {.weight = ones({2, 3, 3})});
            }),
            "weight is f32 [2, 3, 3]"));
}
