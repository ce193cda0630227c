// Each optimizer against its formulas, as PyTorch documents them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/optim/optim_testing.h"

using namespace halfgrad;
using namespace halfgrad::optim;
using namespace halfgrad::testing;

namespace {

// A number computed in f32, as the exact result and a bound on the error (running error analysis): every
// operation passes on the errors of its operands and adds half a unit in the last place of its own, 2^-24 of
// the result or, below the normal floats, 2^-150.
struct Bounded {
  double value = 0;
  double error = 0;

  static Bounded rounded(double value, double error) {
    return {value, error + (std::abs(value) + error) * 0x1p-24 + 0x1p-150};
  }
  static Bounded constant(double c) { return rounded(c, 0); }
  static Bounded exact(double c) { return {c, 0}; }

  friend Bounded operator+(Bounded a, Bounded b) { return rounded(a.value + b.value, a.error + b.error); }
  friend Bounded operator-(Bounded a, Bounded b) { return rounded(a.value - b.value, a.error + b.error); }
  friend Bounded operator*(Bounded a, Bounded b) {
    return rounded(a.value * b.value, std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error);
  }
  friend Bounded operator/(Bounded a, Bounded b) {
    const double smallest = std::abs(b.value) - b.error;
    REQUIRE(smallest > 0);
    return rounded(a.value / b.value, (a.error + std::abs(a.value / b.value) * b.error) / smallest);
  }
  friend Bounded sqrt(Bounded a) {
    const double root = std::sqrt(a.value);
    return rounded(root,
                   std::max(std::sqrt(a.value + a.error) - root, root - std::sqrt(std::max(a.value - a.error, 0.0))));
  }
};

double constant(double c, double) { return c; }
Bounded constant(double c, Bounded) { return Bounded::constant(c); }
double exact(double c, double) { return c; }
Bounded exact(double c, Bounded) { return Bounded::exact(c); }
double value_of(double x) { return x; }
double value_of(Bounded x) { return x.value; }

// One weight and what an optimizer remembers about it.
template <class T>
struct Weight {
  T w{}, buffer{}, average{}, average_sq{};
  int t = 0;
};

struct Sgd {
  SGDOptions options;
  std::unique_ptr<Optimizer> make(const Tensors& params) const { return std::make_unique<SGD>(params, options); }
  template <class T>
  void step(Weight<T>& x, T g) const {
    const auto c = [](double v) { return constant(v, T()); };
    if (options.weight_decay != 0) g = g + c(options.weight_decay) * x.w;
    if (options.momentum != 0) {
      x.buffer = x.t == 0 ? g : c(options.momentum) * x.buffer + c(1 - options.dampening) * g;
      g = options.nesterov ? g + c(options.momentum) * x.buffer : x.buffer;
    }
    x.w = x.w - c(options.lr) * g;
    ++x.t;
  }
};

template <class Options, class Class>
struct AdamLike {
  Options options;
  std::unique_ptr<Optimizer> make(const Tensors& params) const { return std::make_unique<Class>(params, options); }
  template <class T>
  void step(Weight<T>& x, T g) const {
    const auto c = [](double v) { return constant(v, T()); };
    const bool decoupled = std::is_same_v<Class, AdamW>;
    ++x.t;
    if (decoupled) x.w = x.w * c(1 - options.lr * options.weight_decay);
    if (!decoupled && options.weight_decay != 0) g = g + c(options.weight_decay) * x.w;
    x.average = x.average + (g - x.average) * c(1 - options.beta1);
    x.average_sq = c(options.beta2) * x.average_sq + c(1 - options.beta2) * g * g;
    const double correction1 = 1 - std::pow(options.beta1, x.t);
    const double correction2 = 1 - std::pow(options.beta2, x.t);
    const T denominator = sqrt(x.average_sq) / c(std::sqrt(correction2)) + c(options.eps);
    x.w = x.w - c(options.lr / correction1) * (x.average / denominator);
  }
};

struct Rms {
  RMSpropOptions options;
  std::unique_ptr<Optimizer> make(const Tensors& params) const { return std::make_unique<RMSprop>(params, options); }
  template <class T>
  void step(Weight<T>& x, T g) const {
    const auto c = [](double v) { return constant(v, T()); };
    if (options.weight_decay != 0) g = g + c(options.weight_decay) * x.w;
    x.average_sq = c(options.alpha) * x.average_sq + c(1 - options.alpha) * g * g;
    T direction = g / (sqrt(x.average_sq) + c(options.eps));
    if (options.momentum != 0) direction = x.buffer = c(options.momentum) * x.buffer + direction;
    x.w = x.w - c(options.lr) * direction;
  }
};

// 50 steps with given gradients; `allowed(weight)` is how far a result may be off.
template <class T, class Rule, class Allowed>
void compare(const Rule& rule, DType dtype, Allowed&& allowed) {
  constexpr std::int64_t n = 37;  // with a rest on every vector length
  const Tensor param = parameter({n}, dtype, 1);
  std::vector<Weight<T>> expected(n);
  const std::vector<double> start = param.to_vector<double>();
  for (std::size_t i = 0; i < n; ++i) expected[i].w = exact(start[i], T());

  const auto optimizer = rule.make({param});
  for (unsigned step = 0; step < 50; ++step) {
    Tensor p = param;
    p.set_grad(random_tensor({n}, dtype, 100 + step));
    const std::vector<double> grads = p.grad().template to_vector<double>();
    optimizer->step();
    for (std::size_t i = 0; i < n; ++i) rule.step(expected[i], exact(grads[i], T()));
  }
  const std::vector<double> actual = param.to_vector<double>();
  double moved = 0;
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(i);
    CHECK(std::abs(actual[i] - value_of(expected[i].w)) <= allowed(expected[i].w));
    moved = std::max(moved, std::abs(actual[i] - start[i]));
  }
  CHECK(moved > 0.01);
}

template <class Rule>
void compare_in_f64_and_f32(const Rule& rule) {
  compare<double>(rule, f64, [](double w) { return 1e-12 * std::max(1.0, std::abs(w)); });
  compare<Bounded>(rule, f32, [](Bounded w) {
    CHECK(w.error < 1e-2);  // a bound that says something
    return w.error;
  });
}

using AdamRule = AdamLike<AdamOptions, Adam>;
using AdamWRule = AdamLike<AdamWOptions, AdamW>;

}  // namespace

TEST_CASE("SGD computes PyTorch's formula") {
  compare_in_f64_and_f32(Sgd{{.lr = 0.1}});
  compare_in_f64_and_f32(Sgd{{.lr = 0.1, .weight_decay = 0.01}});
  compare_in_f64_and_f32(Sgd{{.lr = 0.1, .momentum = 0.9}});
  compare_in_f64_and_f32(Sgd{{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01}});
  compare_in_f64_and_f32(Sgd{{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}});
}

TEST_CASE("Adam computes PyTorch's formula") {
  compare_in_f64_and_f32(AdamRule{{.lr = 0.01}});
  compare_in_f64_and_f32(AdamRule{{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-5, .weight_decay = 0.1}});
}

TEST_CASE("AdamW computes PyTorch's formula") {
  compare_in_f64_and_f32(AdamWRule{{.lr = 0.01}});
  compare_in_f64_and_f32(AdamWRule{{.lr = 0.01, .eps = 1e-5, .weight_decay = 0.3}});
}

TEST_CASE("RMSprop computes PyTorch's formula") {
  compare_in_f64_and_f32(Rms{{.lr = 0.01}});
  compare_in_f64_and_f32(Rms{{.lr = 0.01, .alpha = 0.9, .eps = 1e-6, .weight_decay = 0.01, .momentum = 0.9}});
}

TEST_CASE("the first Adam step moves every weight by the learning rate, whatever the gradient's size") {
  Tensor w = tensor({1, 1, 1}, f64).requires_grad_();
  w.set_grad(tensor({1e-3, 1, -1e3}, f64));
  Adam({w}, {.lr = 0.1}).step();
  const std::vector<double> values = w.to_vector<double>();
  // g / (|g| + eps) with eps = 1e-8
  CHECK(values[0] == doctest::Approx(0.9).epsilon(1e-5));
  CHECK(values[1] == doctest::Approx(0.9).epsilon(1e-7));
  CHECK(values[2] == doctest::Approx(1.1).epsilon(1e-7));
}

TEST_CASE("the defaults are PyTorch's") {
  Tensor w = parameter({1}, f32, 1);
  const SGD sgd({w});
  CHECK(sgd.groups()[0].lr == 1e-3);
  CHECK(sgd.groups()[0].momentum == 0);
  CHECK(sgd.groups()[0].weight_decay == 0);
  const Adam adam({w});
  CHECK(adam.groups()[0].lr == 1e-3);
  CHECK(adam.groups()[0].momentum == 0.9);
  CHECK(adam.groups()[0].beta2 == 0.999);
  CHECK(adam.groups()[0].weight_decay == 0);
  CHECK(AdamW({w}).groups()[0].weight_decay == 1e-2);
  const RMSprop rmsprop({w});
  CHECK(rmsprop.groups()[0].lr == 1e-2);
  CHECK(rmsprop.groups()[0].beta2 == 0.99);
}

TEST_CASE("a parameter that is not row-major is updated element by element all the same") {
  for (const NamedFactory& kind : all_optimizers()) {
    CAPTURE(kind.name);
    Tensor plain = parameter({2, 3, 4, 5}, f32, 1);
    Tensor channels_last = random_tensor({2, 3, 4, 5}, f32, 1).channels_last().requires_grad_();
    Tensor wide = random_tensor({2, 3, 4, 10}, f32, 1);
    Tensor sliced = wide.slice(3, 0, 10, 2);
    sliced.copy_(plain.detach());
    sliced.requires_grad_();
    const Tensor between = wide.slice(3, 1, 10, 2).clone();
    const auto a = make_optimizer(kind.make, {plain}), b = make_optimizer(kind.make, {channels_last}),
               c = make_optimizer(kind.make, {sliced});
    for (unsigned step = 0; step < 3; ++step) {
      for (Tensor* w : {&plain, &channels_last, &sliced}) w->set_grad(random_tensor(w->shape(), f32, 50 + step));
      a->step(), b->step(), c->step();
    }
    CHECK(same_bits(plain, channels_last));
    CHECK(same_bits(plain, sliced));
    CHECK(channels_last.is_channels_last());
    CHECK(same_bits(between, wide.slice(3, 1, 10, 2)));
  }
}
