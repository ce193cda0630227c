#include <cmath>
#include <limits>

#include "engine/ops/elementwise.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;
using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Function = std::function<Num(const Num&)>;
using Function2 = std::function<Num(const Num&, const Num&)>;
using oracle::rounded_constant;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Range {
  double low = -2, high = 2;
};

// What becomes of integers: the op keeps their dtype, makes f32 of them, or answers with bool whatever it is
// given.
enum class Result { same, fraction, boolean };

DType result_of(Result result, DType t) {
  if (result == Result::boolean) return boolean;
  return result == Result::fraction && !is_floating(t) ? f32 : t;
}

// --- one operand -------------------------------------------------------------------------------------------

// An op on one operand in all shapes (edges, and sizes that no block divides), in all dtypes, and on special
// values.
Entry& unary(Entries& entries, const char* name, const Op1& op, const Function& f, Range range = {},
             Result result = Result::fraction, Derivatives derivatives = Derivatives::any,
             Accuracy accuracy = Accuracy::bounded) {
  Entry& entry = make_entry(entries, name, derivatives, accuracy);
  const Oracle1 expected = [f, result](const Arrays& x) { return oracle::map(x[0], result_of(result, x[0].dtype), f); };
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{1}, Shape{3, 0, 2}, Shape{3, 5}, Shape{2, 3, 4, 5}, Shape{1, 67, 1}})
    entry.add(shape.str(), {uniform(shape, range.low, range.high)}, op, expected);
  Case& large = entry.add("longer than a block", {uniform({3, 4099}, range.low, range.high)}, op, expected);
  large.layouts = false;
  for (DType t : {i32, i64, u8})
    entry.add(halfgrad::name_of(t), {whole_numbers({3, 5}, range.low, range.high, t)}, op, expected).dtypes.clear();
  Case& special = entry.add("special values", {special_values()}, op, expected);
  special.gradients = special.smooth = false;
  return entry;
}

Entry& unary(Entries& entries, const char* name, Unary op, const Function& f, Range range = {},
             Result result = Result::fraction, Derivatives derivatives = Derivatives::any,
             Accuracy accuracy = Accuracy::bounded) {
  return unary(
      entries, name, [op](const Tensors& x) { return op(x[0]); }, f, range, result, derivatives, accuracy);
}

void exact(Entries& entries, const char* name, Unary op, const Function& f, Result result, Range range = {}) {
  unary(entries, name, op, f, range, result, Derivatives::any, Accuracy::rounded_once);
}

void predicate(Entries& entries, const char* name, Unary op, bool (*f)(double)) {
  unary(
      entries, name, op, [f](const Num& x) { return Num(f(x.value)); }, {}, Result::boolean, Derivatives::none,
      Accuracy::rounded_once);
}

// The gradient where there is none is a convention that the oracle shares.
void add_kinks(Entry& entry, const std::vector<double>& at) {
  const Case& like = entry.cases.front();
  entry.add("kinks", {from_vector(at)}, like.op, like.oracle).smooth = false;
}

// Piecewise constant: the gradient is 0.
Function step(double (*f)(double)) {
  return [f](const Num& x) { return Num(f(x.value)); };
}

double nearest_even(double x) { return std::nearbyint(x); }
double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

void register_unary(Entries& entries) {
  exact(
      entries, "neg", neg, [](const Num& x) { return -x; }, Result::same);
  std::erase_if(entries.back().cases, [](const Case& c) { return c.name == "u8"; });  // has no negative numbers
  entries.back().error("bool", [] { neg(ones({2}, boolean)); });
  exact(
      entries, "abs", halfgrad::abs, [](const Num& x) { return oracle::abs(x); }, Result::same);
  add_kinks(entries.back(), {0});
  exact(entries, "sign", sign, step(sign_of), Result::same);
  exact(entries, "floor", halfgrad::floor, step(std::floor), Result::fraction);
  exact(entries, "ceil", halfgrad::ceil, step(std::ceil), Result::fraction);
  exact(entries, "round", halfgrad::round, step(nearest_even), Result::fraction);
  add_kinks(entries.back(), {0.5, 1.5, 2.5, -0.5, -1.5});
  exact(entries, "reciprocal", reciprocal, oracle::reciprocal, Result::fraction, {0.5, 3});
  exact(
      entries, "square", square, [](const Num& x) { return x * x; }, Result::same);
  exact(entries, "sqrt", halfgrad::sqrt, oracle::sqrt, Result::fraction, {0.1, 4});
  exact(
      entries, "relu", relu, [](const Num& x) { return x.value <= 0 ? Num(0) : x; }, Result::same);
  add_kinks(entries.back(), {0});
  unary(entries, "exp", halfgrad::exp, oracle::exp);
  unary(entries, "expm1", halfgrad::expm1, oracle::expm1);
  unary(entries, "log", halfgrad::log, oracle::log, {0.1, 4});
  unary(entries, "log1p", halfgrad::log1p, oracle::log1p, {-0.5, 4});
  unary(entries, "rsqrt", rsqrt, oracle::rsqrt, {0.1, 4});
  unary(entries, "sin", halfgrad::sin, oracle::sin, {-7, 7});
  unary(entries, "cos", halfgrad::cos, oracle::cos, {-7, 7});
  unary(entries, "tanh", halfgrad::tanh, oracle::tanh);
  unary(entries, "sigmoid", sigmoid, oracle::sigmoid, {-5, 5});
  unary(entries, "erf", halfgrad::erf, oracle::erf);
  unary(entries, "erfc", halfgrad::erfc, oracle::erfc);
  unary(entries, "gelu", gelu,
        [](const Num& x) { return 0.5 * x * oracle::erfc(x * rounded_constant(-std::sqrt(0.5))); }, {-4, 4});
  unary(entries, "silu", silu, [](const Num& x) { return x * oracle::sigmoid(x); }, {-5, 5});

  predicate(entries, "logical_not", logical_not, [](double x) { return x == 0; });
  predicate(entries, "isnan", halfgrad::isnan, [](double x) { return std::isnan(x); });
  predicate(entries, "isinf", halfgrad::isinf, [](double x) { return std::isinf(x); });
  predicate(entries, "isfinite", halfgrad::isfinite, [](double x) { return std::isfinite(x); });
}

// Those with constants.
void register_unary_with_options(Entries& entries) {
  const auto leaky = [](double slope) {
    return [slope](const Num& x) { return x.value > 0 ? x : x * rounded_constant(slope); };
  };
  Entry& leaky_entry = unary(
      entries, "leaky_relu", [](const Tensors& x) { return leaky_relu(x[0], 0.1); }, leaky(0.1));
  leaky_entry.add(
      "default slope", {uniform({3, 5})}, [](const Tensors& x) { return leaky_relu(x[0]); },
      [=](const Arrays& x) { return oracle::map(x[0], leaky(0.01)); });
  add_kinks(leaky_entry, {0});

  const auto elu_of = [](double alpha) {
    return [alpha](const Num& x) { return x.value > 0 ? x : rounded_constant(alpha) * oracle::expm1(x); };
  };
  Entry& elu_entry = unary(
      entries, "elu", [](const Tensors& x) { return elu(x[0], 0.7); }, elu_of(0.7));
  elu_entry.add(
      "default alpha", {uniform({3, 5})}, [](const Tensors& x) { return elu(x[0]); },
      [=](const Arrays& x) { return oracle::map(x[0], elu_of(1)); });

  const auto softplus_of = [](double beta) {
    return [beta](const Num& x) {
      const Num steep = x * rounded_constant(beta);
      return (x.value > 0 ? x : Num(0)) + oracle::log1p(oracle::exp(-oracle::abs(steep))) * rounded_constant(1 / beta);
    };
  };
  Entry& softplus_entry =
      unary(entries, "softplus", [](const Tensors& x) { return softplus(x[0], 1.7); }, softplus_of(1.7), {-5, 5});
  softplus_entry.add(
      "default beta", {uniform({3, 5}, -20, 20)}, [](const Tensors& x) { return softplus(x[0]); },
      [=](const Arrays& x) { return oracle::map(x[0], softplus_of(1)); });
  softplus_entry.error("beta 0", [] { softplus(ones({2}), 0); });

  const auto clamped = [](double min, double max) {
    return [=](const Num& x) { return x.value < min ? Num(min) : x.value > max ? Num(max) : x; };
  };
  Entry& clamp_entry = unary(
      entries, "clamp", [](const Tensors& x) { return clamp(x[0], -1, 1.5); }, clamped(-1, 1.5), {}, Result::same,
      Derivatives::any, Accuracy::rounded_once);
  clamp_entry.cases.erase(clamp_entry.cases.end() - 4,
                          clamp_entry.cases.end() - 1);  // 1.5 is no bound for integers
  clamp_entry
      .add(
          "at the bounds", {from_vector(std::vector<double>{-1, 1.5})},
          [](const Tensors& x) { return clamp(x[0], -1, 1.5); },
          [=](const Arrays& x) { return oracle::map(x[0], clamped(-1, 1.5)); })
      .smooth = false;
  clamp_entry.add(
      "from below", {uniform({3, 5})}, [](const Tensors& x) { return clamp(x[0], 0.5, kInf); },
      [=](const Arrays& x) { return oracle::map(x[0], clamped(0.5, kInf)); });
  clamp_entry
      .add(
          "integers", {integers({3, 5}, -9, 9)}, [](const Tensors& x) { return clamp(x[0], -kInf, 3); },
          [=](const Arrays& x) { return oracle::map(x[0], clamped(-kInf, 3)); })
      .dtypes.clear();
}

// --- two operands ------------------------------------------------------------------------------------------

// An op on two operands: equal shapes, all kinds of broadcasting, all dtypes and mixtures of them.
Entry& binary(Entries& entries, const char* name, Binary function, const Function2& f, Range left, Range right,
              Result result, Derivatives derivatives = Derivatives::any, Accuracy accuracy = Accuracy::rounded_once) {
  Entry& entry = make_entry(entries, name, derivatives, accuracy);
  const Op1 op = [function](const Tensors& x) { return function(x[0], x[1]); };
  const Oracle1 expected = [f, result](const Arrays& x) {
    return oracle::zip(x[0], x[1], result_of(result, promote(x[0].dtype, x[1].dtype)), f);
  };
  const std::pair<Shape, Shape> shapes[] = {{{}, {}},
                                            {{1}, {1}},
                                            {{0}, {1}},
                                            {{3, 5}, {3, 5}},
                                            {{3, 1}, {1, 5}},
                                            {{2, 3, 4}, {4}},
                                            {{3}, {2, 4, 3}},
                                            {{}, {3, 5}},
                                            {{5, 3}, {}},
                                            {{2, 1, 3}, {5, 1}},
                                            {{2, 3, 4, 5}, {2, 3, 4, 5}},
                                            {{3, 0}, {1, 1}}};
  for (const auto& [a, b] : shapes)
    entry.add(a.str() + b.str(), {uniform(a, left.low, left.high, 1), uniform(b, right.low, right.high, 2)}, op,
              expected);
  entry
      .add("longer than a block",
           {uniform({3, 4099}, left.low, left.high, 1), uniform({3, 4099}, right.low, right.high, 2)}, op, expected)
      .layouts = false;
  for (DType t : {i32, i64, u8})
    entry
        .add(halfgrad::name_of(t),
             {whole_numbers({3, 5}, left.low, left.high, t, 1), whole_numbers({5}, right.low, right.high, t, 2)}, op,
             expected)
        .dtypes.clear();

  // Mixed dtypes: the larger kind and the wider type win, but a rank-0 tensor widens nothing within its kind.
  const auto mixed = [&](DType a, DType b) {
    const auto sample = [](DType t, Range r, std::uint64_t seed) {
      return is_floating(t) ? uniform({3, 5}, r.low, r.high, seed).to(f16).to(t)
                            : whole_numbers({3, 5}, r.low, r.high, t, seed);
    };
    entry
        .add(fmt::format("{} with {}", halfgrad::name_of(a), halfgrad::name_of(b)),
             {sample(a, left, 1), sample(b, right, 2)}, op, expected)
        .dtypes.clear();
  };
  mixed(f16, f32);
  mixed(f32, f16);
  mixed(f64, f16);
  mixed(f16, i64);
  mixed(i32, f32);
  mixed(u8, i32);
  for (DType wide : {f32, f64})
    entry
        .add(fmt::format("f16 with a rank-0 {}", halfgrad::name_of(wide)),
             {uniform({3, 5}, left.low, left.high).to(f16), Tensor(full({}, 1.5, wide))}, op,
             [f, result](const Arrays& x) { return oracle::zip(x[0], x[1], result_of(result, f16), f); })
        .dtypes.clear();

  entry.error("shapes that do not broadcast", [function] { function(ones({2, 3}), ones({4})); });
  entry.error("an undefined operand", [function] { function(ones({2}), Tensor()); });
  return entry;
}

// Every pair of special values.
void add_special_pairs(Entry& entry) {
  const Tensor v = special_values();
  Case& special =
      entry.add("special values", {v, v.reshape({-1, 1})}, entry.cases.front().op, entry.cases.front().oracle);
  special.gradients = special.smooth = false;
}

// Small whole numbers as floats, so that many are equal.
Tensor with_ties(const Shape& shape, std::uint64_t seed) { return integers(shape, -2, 3, seed).to(f64); }

void comparison(Entries& entries, const char* name, Binary op, bool (*f)(double, double)) {
  Entry& entry = binary(
      entries, name, op, [f](const Num& a, const Num& b) { return Num(f(a.value, b.value)); }, {}, {}, Result::boolean,
      Derivatives::none);
  add_special_pairs(entry);
  entry.add("ties", {with_ties({5, 7}, 1), with_ties({7}, 2)}, entry.cases.front().op, entry.cases.front().oracle);
  entry
      .add("bool", {whole_numbers({3, 5}, 0, 1, boolean, 1), whole_numbers({3, 5}, 0, 1, boolean, 2)},
           entry.cases.front().op, entry.cases.front().oracle)
      .dtypes.clear();
}

void register_binary(Entries& entries) {
  add_special_pairs(binary(
      entries, "add", add, [](const Num& a, const Num& b) { return a + b; }, {}, {}, Result::same));
  add_special_pairs(binary(
      entries, "sub", sub, [](const Num& a, const Num& b) { return a - b; }, {2, 4}, {-2, 2}, Result::same));
  add_special_pairs(binary(
      entries, "mul", mul, [](const Num& a, const Num& b) { return a * b; }, {}, {}, Result::same));
  add_special_pairs(binary(
      entries, "div", div, [](const Num& a, const Num& b) { return a / b; }, {}, {0.5, 3}, Result::fraction));
  const auto either = [&](const char* name, Binary op, double sign) {
    Entry& entry = binary(
        entries, name, op,
        [sign](const Num& a, const Num& b) {
          return oracle::extremum({a, b}, sign);
        },
        {}, {}, Result::same);
    add_special_pairs(entry);
    entry.add("ties", {with_ties({5, 7}, 1), with_ties({7}, 2)}, entry.cases.front().op, entry.cases.front().oracle)
        .smooth = false;
  };
  either("maximum", maximum, 1);
  either("minimum", minimum, -1);

  Entry& pow_entry = binary(entries, "pow", halfgrad::pow, oracle::pow, {0.2, 3}, {-2, 2}, Result::same,
                            Derivatives::any, Accuracy::bounded);
  std::erase_if(pow_entry.cases, [](const Case& c) {  // with exponents below 0: 1 / 2^n is no integer
    return c.name == "i32" || c.name == "i64" || c.name == "u8 with i32";
  });
  pow_entry
      .add("integers", {integers({3, 5}, -3, 4, 1), integers({5}, 0, 4, 2)}, pow_entry.cases.front().op,
           pow_entry.cases.front().oracle)
      .dtypes.clear();
  pow_entry
      .add(
          "zero and negative bases",
          {from_vector(std::vector<double>{0, 0, -2, -2, 3}), from_vector(std::vector<double>{2, 0, 2, 3, 0})},
          [](const Tensors& x) { return halfgrad::pow(x[0], x[1].detach()); },
          [](const Arrays& x) {
            return oracle::zip(x[0], x[1], [](const Num& a, const Num& b) { return oracle::pow(a, b.value); });
          })
      .smooth = false;

  comparison(entries, "eq", eq, [](double a, double b) { return a == b; });
  comparison(entries, "ne", ne, [](double a, double b) { return a != b; });
  comparison(entries, "lt", lt, [](double a, double b) { return a < b; });
  comparison(entries, "le", le, [](double a, double b) { return a <= b; });
  comparison(entries, "gt", gt, [](double a, double b) { return a > b; });
  comparison(entries, "ge", ge, [](double a, double b) { return a >= b; });
  comparison(entries, "logical_and", logical_and, [](double a, double b) { return a != 0 && b != 0; });
  comparison(entries, "logical_or", logical_or, [](double a, double b) { return a != 0 || b != 0; });
  comparison(entries, "logical_xor", logical_xor, [](double a, double b) { return (a != 0) != (b != 0); });
}

}  // namespace

void register_elementwise(Entries& entries) {
  register_unary(entries);
  register_unary_with_options(entries);
  register_binary(entries);
}

}  // namespace halfgrad::testing
