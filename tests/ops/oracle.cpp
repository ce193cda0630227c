#include "tests/ops/oracle.h"

#include <algorithm>

namespace halfgrad::oracle {

namespace {

// What a number was made from: derivatives by its inputs.
struct Edge {
  int input;
  Approx derivative;
};
struct Record {
  std::size_t first_edge;  // its edges end where those of the next record begin
  bool rounds_gradient;
};

thread_local Precision precision;
thread_local std::vector<Record> records;
thread_local std::vector<Edge> edges;

// Units in the last place by which the float and double functions of glibc and of the kernels may be wrong,
// with some room (glibc's manual, section "Known Maximum Errors in Math Functions").
constexpr double kFunctionUlps = 3;

double rounding(double value) { return value == 0 ? 0 : precision.unit * std::abs(value) + precision.tiny; }
double times(double factor, double error) { return error == 0 || factor == 0 ? 0 : std::abs(factor) * error; }

Approx add(Approx a, Approx b) {
  const double v = a.value + b.value;
  return {v, a.error + b.error + (a.value == 0 || b.value == 0 ? 0 : rounding(v))};
}
Approx negated(Approx a) { return {-a.value, a.error}; }
Approx multiply(Approx a, Approx b) {
  const double v = a.value * b.value;
  const bool exact = std::abs(a.value) == 1 || std::abs(b.value) == 1;
  return {v, times(a.value, b.error) + times(b.value, a.error) + (exact ? 0 : rounding(v))};
}
Approx divide(Approx a, Approx b) {
  const double v = a.value / b.value;
  return {v, times(1 / b.value, a.error) + times(v / b.value, b.error) + (b.value == 1 ? 0 : rounding(v))};
}
// A library function: its value at a and its exact derivative there.
Approx function(Approx a, double value, double derivative) {
  return {value, times(derivative, a.error) + 2 * kFunctionUlps * rounding(value)};
}

// As it is after it was stored in a tensor.
Approx kept(Approx a) {
  return {a.value, a.error + (a.value == 0 ? 0 : precision.storage * std::abs(a.value) + precision.tiny_storage)};
}

Num push(Approx y, std::initializer_list<std::pair<Num, Approx>> inputs, bool rounds_gradient = false) {
  const std::size_t first = edges.size();
  for (const auto& [x, derivative] : inputs)
    if (x.node >= 0) edges.push_back({x.node, derivative});
  if (edges.size() == first) return {y, -1};
  records.push_back({first, rounds_gradient});
  return {y, static_cast<int>(records.size()) - 1};
}

// A number whose derivatives by those of a line are given.
Num push_line(Approx y, const std::vector<Num>& x, const std::function<Approx(std::size_t)>& derivative) {
  const std::size_t first = edges.size();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].node >= 0) edges.push_back({x[i].node, derivative(i)});
  if (edges.size() == first) return {y, -1};
  records.push_back({first, false});
  return {y, static_cast<int>(records.size()) - 1};
}

}  // namespace

Precision precision_of(DType dtype) {
  if (dtype == f64) return {};
  Precision p{0x1p-24, 0x1p-24, 0x1p-150, 0x1p-150};
  if (dtype == f16) {
    p.storage = 0x1p-11;
    p.tiny_storage = 0x1p-25;
  }
  return p;
}

void start(const Precision& p) {
  precision = p;
  records.clear();
  edges.clear();
}

Num input(double value) {
  records.push_back({edges.size(), false});
  return {{value, 0}, static_cast<int>(records.size()) - 1};
}

std::vector<Approx> backward(const std::vector<Num>& outputs, const std::vector<double>& seeds,
                             const std::vector<Num>& inputs) {
  // The sum of what arrives at a number, in any order.
  struct Gradient {
    Approx sum;
    double magnitude = 0;
    int terms = 0;
    void add(Approx term) {
      sum.value += term.value;
      sum.error += term.error;
      magnitude += std::abs(term.value);
      ++terms;
    }
    Approx total() const { return {sum.value, sum.error + (terms > 1 ? (terms - 1) * precision.unit * magnitude : 0)}; }
  };
  std::vector<Gradient> gradients(records.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].node >= 0) gradients[static_cast<std::size_t>(outputs[i].node)].add({seeds[i], 0});
  for (std::size_t node = records.size(); node-- > 0;) {
    if (gradients[node].terms == 0) continue;
    Approx dy = gradients[node].total();
    if (records[node].rounds_gradient) dy = kept(dy);
    const std::size_t end = node + 1 < records.size() ? records[node + 1].first_edge : edges.size();
    for (std::size_t e = records[node].first_edge; e < end; ++e)
      gradients[static_cast<std::size_t>(edges[e].input)].add(multiply(dy, edges[e].derivative));
  }
  std::vector<Approx> results;
  for (const Num& x : inputs) results.push_back(gradients[static_cast<std::size_t>(x.node)].total());
  return results;
}

Num rounded_constant(double value) { return {{value, precision.unit * std::abs(value)}, -1}; }

Num operator-(const Num& a) { return push(negated(a), {{a, {-1, 0}}}); }
Num operator+(const Num& a, const Num& b) { return push(add(a, b), {{a, {1, 0}}, {b, {1, 0}}}); }
Num operator-(const Num& a, const Num& b) { return push(add(a, negated(b)), {{a, {1, 0}}, {b, {-1, 0}}}); }
Num operator*(const Num& a, const Num& b) { return push(multiply(a, b), {{a, b}, {b, a}}); }
Num operator/(const Num& a, const Num& b) {
  return push(divide(a, b), {{a, divide({1, 0}, b)}, {b, negated(divide(divide(a, b), b))}});
}

Num total(const std::vector<Num>& terms) {
  long double value = 0;
  double error = 0, magnitude = 0;
  for (const Num& x : terms) {
    value += x.value;
    error += x.error;
    magnitude += std::abs(x.value);
  }
  if (terms.size() > 1) error += static_cast<double>(terms.size() - 1) * precision.unit * magnitude;
  return push_line({static_cast<double>(value), error}, terms, [](std::size_t) { return Approx{1, 0}; });
}

Num one_of(const std::vector<Num>& equals) {
  const Approx share = divide({1, 0}, {static_cast<double>(equals.size()), 0});
  return push_line(equals[0], equals, [share](std::size_t) { return share; });
}

Num extremum(const std::vector<Num>& x, double sign) {
  Num best = x[0];
  for (const Num& v : x)
    if (std::isnan(v.value) || sign * v.value > sign * best.value) best = v;
  std::vector<Num> equals;
  for (const Num& v : x)
    if (v.value == best.value || (std::isnan(v.value) && std::isnan(best.value))) equals.push_back(v);
  return one_of(equals);
}

// --- functions: the value, and the derivative by way of which backward computes ----------------------------

Num exp(const Num& x) {
  const double v = std::exp(x.value);
  const Approx y = function(x, v, v);
  return push(y, {{x, kept(y)}});
}
Num expm1(const Num& x) {
  const Approx y = function(x, std::expm1(x.value), std::exp(x.value));
  return push(y, {{x, add(kept(y), {1, 0})}});
}
Num log(const Num& x) { return push(function(x, std::log(x.value), 1 / x.value), {{x, divide({1, 0}, x)}}); }
Num log1p(const Num& x) {
  return push(function(x, std::log1p(x.value), 1 / (1 + x.value)), {{x, divide({1, 0}, add(x, {1, 0}))}});
}
Num sqrt(const Num& x) {
  const double v = std::sqrt(x.value);
  const Approx y{v, times(0.5 / v, x.error) + rounding(v)};
  return push(y, {{x, divide({0.5, 0}, kept(y))}});
}
Num sin(const Num& x) {
  const double s = std::sin(x.value), c = std::cos(x.value);
  return push(function(x, s, c), {{x, function(x, c, s)}});
}
Num cos(const Num& x) {
  const double s = std::sin(x.value), c = std::cos(x.value);
  return push(function(x, c, s), {{x, negated(function(x, s, c))}});
}
Num tanh(const Num& x) {
  const double v = std::tanh(x.value);
  const Approx y = function(x, v, 1 - v * v), k = kept(y);
  return push(y, {{x, add({1, 0}, negated(multiply(k, k)))}});
}
namespace {
Approx bell(const Num& x) {  // 2/sqrt(pi) e^(-x^2)
  const Approx square = multiply(x, x);
  const double v = std::exp(-square.value);
  return multiply({1.12837916709551257390, 0}, function(square, v, v));
}
}  // namespace
Num erf(const Num& x) {
  const Approx slope = bell(x);
  return push(function(x, std::erf(x.value), slope.value), {{x, slope}});
}
Num erfc(const Num& x) {
  const Approx slope = bell(x);
  return push(function(x, std::erfc(x.value), slope.value), {{x, negated(slope)}});
}
Num pow(const Num& a, const Num& b) {
  const double v = std::pow(a.value, b.value);
  // The derivatives are formulas of their own: b a^(b-1), and a^b log a; 0 where a^b does not change.
  const double lower = std::pow(a.value, b.value - 1);
  const Approx y{
      v, times(b.value * lower, a.error) + times(v * std::log(a.value), b.error) + 2 * kFunctionUlps * rounding(v)};
  Approx by_a = multiply(b, {lower, 2 * kFunctionUlps * rounding(lower)});
  if (b.value == 0) by_a = {};
  Approx by_b = multiply(kept(y), function(a, std::log(a.value), 1 / a.value));
  if (a.value == 0 && b.value >= 0) by_b = {};
  return push(y, {{a, by_a}, {b, by_b}});
}
namespace {
Approx logistic(const Approx& x) {
  const double e = std::exp(-x.value);
  return divide({1, 0}, add({1, 0}, function(x, e, e)));
}
}  // namespace
Num sigmoid(const Num& x) {
  const Approx y = logistic(x), k = kept(y);
  return push(y, {{x, multiply(k, add({1, 0}, negated(k)))}});
}
Num reciprocal(const Num& x) {
  const Approx y = divide({1, 0}, x), k = kept(y);
  return push(y, {{x, negated(multiply(k, k))}});
}
Num rsqrt(const Num& x) {
  const double root = std::sqrt(x.value);
  const Approx y = divide({1, 0}, {root, times(0.5 / root, x.error) + rounding(root)}), k = kept(y);
  return push(y, {{x, multiply({-0.5, 0}, multiply(k, multiply(k, k)))}});
}
Num abs(const Num& x) {
  const double slope = x.value > 0 ? 1 : x.value < 0 ? -1 : 0;
  return push({std::abs(x.value), x.error}, {{x, {slope, 0}}});
}

namespace {

// exp(x - largest) of each number, and their sum.
struct Powers {
  double largest = -INFINITY;
  std::vector<Approx> terms;
  Approx sum;
  // An infinite one gives NaN unless it is left in.
  explicit Powers(const std::vector<Num>& x, bool leave_infinite = false) {
    for (const Num& v : x) largest = std::max(largest, v.value);
    if (leave_infinite && std::isinf(largest)) largest = 0;
    for (const Num& v : x) {
      const Approx z = add(v, {-largest, 0});
      const double e = std::exp(z.value);
      terms.push_back(function(z, e, e));
      sum = {sum.value + terms.back().value,
             sum.error + terms.back().error + static_cast<double>(x.size() - 1) * precision.unit * e};
    }
  }
  Approx log_of_sum() const { return add(function(sum, std::log(sum.value), 1 / sum.value), {largest, 0}); }
};

Approx exp_of(Approx x) { return function(x, std::exp(x.value), std::exp(x.value)); }

}  // namespace

Num log_sum_exp(const std::vector<Num>& x) {
  const Approx y = Powers(x, /*leave_infinite=*/true).log_of_sum();
  const Approx rounded = add(y, {0, precision.unit * std::abs(y.value)});
  return push_line(y, x, [&](std::size_t i) { return exp_of(add(x[i], negated(rounded))); });
}

std::vector<Num> softmax(const std::vector<Num>& x) {
  const Powers powers(x);
  std::vector<Approx> y;
  for (const Approx& e : powers.terms) y.push_back(divide(e, powers.sum));
  std::vector<Num> line;
  for (std::size_t k = 0; k < x.size(); ++k)
    line.push_back(push_line(y[k], x, [&](std::size_t i) {  // y_k (delta_ki - y_i)
      return multiply(kept(y[k]), add({k == i ? 1.0 : 0.0, 0}, negated(kept(y[i]))));
    }));
  return line;
}

std::vector<Num> log_softmax(const std::vector<Num>& x) {
  const Approx log_sum = Powers(x).log_of_sum();
  std::vector<Approx> y;
  for (const Num& v : x) y.push_back(add(v, negated(log_sum)));
  std::vector<Num> line;
  for (std::size_t k = 0; k < x.size(); ++k)
    line.push_back(push_line(y[k], x, [&](std::size_t i) {  // delta_ki - e^y_i
      return add({k == i ? 1.0 : 0.0, 0}, negated(exp_of(kept(y[i]))));
    }));
  return line;
}

Num between_nodes(const Num& x) { return push(x, {{x, {1, 0}}}, true); }

}  // namespace halfgrad::oracle
