#include <cmath>
#include <limits>

#include "engine/ops/reduce.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;
using Line = std::vector<Num>;
using Reduction = std::function<Tensor(const Tensor& x, const Shape& dims, bool keepdim)>;
using Formula = std::function<Num(const Line&)>;

constexpr double kInf = std::numeric_limits<double>::infinity();

// What becomes of integers.
enum class Result { same, sum, position, truth };

DType result_of(Result result, DType t) {
  switch (result) {
    case Result::same:
      return t;
    case Result::sum:
      return is_floating(t) ? t : i64;
    case Result::position:
      return i64;
    case Result::truth:
      return boolean;
  }
  return t;
}

Case& add(Entry& entry, const std::string& name, const Tensor& x, const Reduction& op, const Formula& f, Result result,
          const Shape& dims, bool keepdim) {
  return entry.add(
      name, {x}, [=](const Tensors& x) { return op(x[0], dims, keepdim); },
      [=](const Arrays& x) { return oracle::reduce(x[0], dims, keepdim, result_of(result, x[0].dtype), f); });
}

// A reduction over every choice of dimensions that differs in kind. `equal` says whether it is defined when
// elements are equal, as those of an expanded tensor are.
Entry& reduction(Entries& entries, const char* name, const Reduction& op, const Formula& f, Result result,
                 Derivatives derivatives = Derivatives::any, Accuracy accuracy = Accuracy::bounded, bool equal = true) {
  Entry& entry = make_entry(entries, name, derivatives, accuracy);
  const auto over = [&](const Shape& shape, const Shape& dims, bool keepdim) {
    add(entry, fmt::format("{} over {}{}", shape.str(), dims.str(), keepdim ? " kept" : ""), distinct(shape), op, f,
        result, dims, keepdim)
        .repeats = equal;
  };
  over({7}, {}, false);
  over({3, 5}, {}, true);
  over({3, 5}, {0}, false);
  over({3, 5}, {-1}, false);
  over({3, 5}, {-1}, true);
  over({2, 3, 4}, {1}, false);
  over({2, 3, 4}, {0, 2}, true);
  over({2, 3, 2, 3}, {0, 2, 3}, false);
  over({2, 3, 2, 3}, {1}, true);
  over({0, 3}, {1}, false);
  over({67, 33}, {0}, false);
  over({67, 33}, {1}, false);
  entry.error("a dimension that is not there", [op] { op(ones({2, 3}), {2}, false); });
  entry.error("a dimension twice", [op] { op(ones({2, 3}), {0, -2}, false); });
  return entry;
}

void add_integers(Entry& entry, const Reduction& op, const Formula& f, Result result) {
  for (DType t : {i32, i64, u8, boolean}) {
    const Tensor x = integers({3, 4}, t == u8 || t == boolean ? 0 : -3, 4).to(t);
    add(entry, halfgrad::name_of(t), x, op, f, result, {1}, false).dtypes.clear();
  }
}

// What a reduction of no elements, and of one, gives.
void add_small(Entry& entry, const Reduction& op, const Formula& f, Result result, bool empty) {
  add(entry, "a scalar", distinct({}), op, f, result, {}, false);
  add(entry, "one element", distinct({1, 1}), op, f, result, {0}, false);
  if (!empty) entry.error("nothing to reduce", [op] { op(ones({2, 0}), {1}, false); });
  if (empty) add(entry, "nothing to reduce", distinct({3, 0, 2}), op, f, result, {1}, false).smooth = false;
}

// Lines of a special value between two ordinary ones.
void add_special(Entry& entry, const Reduction& op, const Formula& f, Result result) {
  std::vector<double> values;
  for (double special : special_values().to_vector<double>()) values.insert(values.end(), {1, special, -0.5});
  const auto lines = static_cast<std::int64_t>(values.size() / 3);
  Case& c = add(entry, "special values", from_vector(values, {lines, 3}), op, f, result, {1}, false);
  c.gradients = c.smooth = false;
}

Num number(std::size_t n) { return Num(static_cast<double>(n)); }

Num product(const Line& x) {
  Num y = 1;
  for (const Num& v : x) y = y * v;
  return y;
}

Num average(const Line& x) { return oracle::total(x) / number(x.size()); }

Num variance(const Line& x, double correction) {
  const Num center = average(x);
  Line squares;
  for (const Num& v : x) squares.push_back((v - center) * (v - center));
  return oracle::total(squares) / Num(std::max(0.0, static_cast<double>(x.size()) - correction));
}

Num norm_of(const Line& x, double p) {
  Line terms;
  for (const Num& v : x)
    terms.push_back(p == 2                    ? v * v
                    : p == 0                  ? Num(v.value != 0)
                    : std::isinf(p) || p == 1 ? oracle::abs(v)
                                              : oracle::pow(oracle::abs(v), p));
  if (std::isinf(p)) return oracle::extremum(terms, p > 0 ? 1 : -1);
  const Num y = oracle::total(terms);
  return p == 2 ? oracle::sqrt(y) : p == 0 || p == 1 ? y : oracle::pow(y, 1 / p);
}

void register_sums(Entries& entries) {
  const auto total = [](const Line& x) { return oracle::total(x); };
  Entry& sum_entry = reduction(entries, "sum", sum, total, Result::sum);
  add_integers(sum_entry, sum, total, Result::sum);
  add_small(sum_entry, sum, total, Result::sum, true);
  add_special(sum_entry, sum, total, Result::sum);
  // Summed in f16 these would get stuck at 2048, and the other way round at 65504.
  add(sum_entry, "5000 ones", ones({5000}, f64), sum, total, Result::sum, {}, false).layouts = false;
  add(sum_entry, "above the range of f16 and back", from_vector(std::vector<double>{60000, 60000, -60000, -30000}), sum,
      total, Result::sum, {}, false);

  Entry& mean_entry = reduction(entries, "mean", mean, average, Result::same);
  add_small(mean_entry, mean, average, Result::same, true);
  add_special(mean_entry, mean, average, Result::same);
  add(mean_entry, "a sum above the range of f16", full({9}, 60000, f64), mean, average, Result::same, {}, false);
  mean_entry.error("integers", [] { mean(arange(3)); });

  Entry& prod_entry = make_entry(entries, "prod");
  const auto over = [&](const char* name, const Tensor& x, const Shape& dims, bool keepdim) -> Case& {
    return add(prod_entry, name, x, prod, product, Result::sum, dims, keepdim);
  };
  over("everything", uniform({3, 5}, 0.5, 2), {}, false);
  over("a middle dimension", uniform({2, 3, 4}), {1}, false);
  over("two dimensions, kept", uniform({2, 3, 4}), {0, -1}, true);
  over("an image", uniform({2, 3, 2, 3}), {1, 2}, false);
  over("one zero in a line, two in another", from_vector(std::vector<double>{0, 2, 3, 0, 0, 5}, {2, 3}), {1}, false);
  over("nothing", uniform({3, 0}), {1}, false).smooth = false;
  add_integers(prod_entry, prod, product, Result::sum);
  prod_entry.error("a dimension that is not there", [] { prod(ones({2}), {1}); });

  const Op1 op = [](const Tensors& x) { return cumsum(x[0], 1); };
  const auto running = [](std::int64_t dim) {
    return [dim](const Arrays& x) {
      Array y = oracle::along(x[0], dim, [](const Line& line) {
        Line sums;
        for (std::size_t n = 1; n <= line.size(); ++n)
          sums.push_back(oracle::total(Line(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(n))));
        return sums;
      });
      y.dtype = result_of(Result::sum, x[0].dtype);
      return y;
    };
  };
  Entry& cumsum_entry = make_entry(entries, "cumsum");
  cumsum_entry.add("rows", {uniform({3, 7})}, op, running(1));
  cumsum_entry.add("a middle dimension", {uniform({2, 3, 4})}, op, running(1));
  cumsum_entry.add(
      "the first of an image", {uniform({2, 3, 2, 3})}, [](const Tensors& x) { return cumsum(x[0], -4); }, running(0));
  cumsum_entry.add("nothing", {uniform({3, 0})}, op, running(1));
  cumsum_entry.add("integers", {integers({3, 7}, -9, 9).to(i32)}, op, running(1)).dtypes.clear();
  cumsum_entry.add("counting truths", {integers({3, 7}, 0, 2).to(boolean)}, op, running(1)).dtypes.clear();
  cumsum_entry.error("a dimension that is not there", [] { cumsum(ones({2}), 1); });
}

void register_extrema(Entries& entries) {
  const auto extremum = [&](const char* name, const Reduction& op, double sign) {
    const Formula f = [sign](const Line& x) { return oracle::extremum(x, sign); };
    Entry& entry = reduction(entries, name, op, f, Result::same, Derivatives::any, Accuracy::rounded_once);
    add_integers(entry, op, f, Result::same);
    add_small(entry, op, f, Result::same, false);
    add_special(entry, op, f, Result::same);
    add(entry, "ties", integers({5, 7}, -2, 3).to(f64), op, f, Result::same, {1}, false).smooth = false;
  };
  extremum("max", max, 1);
  extremum("min", min, -1);

  using Position = Tensor (*)(const Tensor&, std::int64_t, bool);
  using Flat = Tensor (*)(const Tensor&);
  const auto position = [&](const char* name, Position op, Flat flat, double sign) {
    const Formula f = [sign](const Line& x) {  // the first of the best, and the first NaN
      std::size_t best = 0;
      for (std::size_t i = 1; i < x.size(); ++i)
        if (!std::isnan(x[best].value) && (std::isnan(x[i].value) || sign * x[i].value > sign * x[best].value))
          best = i;
      return number(best);
    };
    Entry& entry = make_entry(entries, name, Derivatives::none, Accuracy::rounded_once);
    const Reduction along = [op](const Tensor& x, const Shape& dims, bool keepdim) { return op(x, dims[0], keepdim); };
    for (bool keepdim : {false, true})
      for (std::int64_t dim : {0, 1, -1})
        add(entry, fmt::format("along {}{}", dim, keepdim ? " kept" : ""), distinct({3, 4, 5}), along, f,
            Result::position, {dim}, keepdim);
    add(entry, "ties", integers({5, 7}, -2, 3).to(f64), along, f, Result::position, {1}, false);
    add(
        entry, "of everything", distinct({3, 5, 7}), [flat](const Tensor& x, const Shape&, bool) { return flat(x); }, f,
        Result::position, {}, false);
    add_integers(entry, along, f, Result::position);
    add_special(entry, along, f, Result::position);
    entry.error("a dimension that is not there", [op] { op(ones({2}), 1, false); });
    entry.error("nothing to choose from", [op] { op(ones({2, 0}), 1, false); });
    entry.error("nothing at all", [flat] { flat(ones({0})); });
  };
  position("argmax", argmax, argmax, 1);
  position("argmin", argmin, argmin, -1);

  const auto truth = [&](const char* name, const Reduction& op, bool wanted) {
    const Formula f = [wanted](const Line& x) {  // all: none is 0; any: one is not
      for (const Num& v : x)
        if ((v.value != 0) == wanted) return Num(wanted);
      return Num(!wanted);
    };
    Entry& entry = reduction(entries, name, op, f, Result::truth, Derivatives::none, Accuracy::rounded_once);
    add_integers(entry, op, f, Result::truth);
    add_small(entry, op, f, Result::truth, true);
    add_special(entry, op, f, Result::truth);
  };
  truth("any", any, true);
  truth("all", all, false);
}

void register_statistics(Entries& entries) {
  const auto unbiased = [](const Line& x) { return variance(x, 1); };
  const Reduction var_op = [](const Tensor& x, const Shape& dims, bool keepdim) { return var(x, dims, keepdim); };
  Entry& var_entry = reduction(entries, "var", var_op, unbiased, Result::same);
  add(
      var_entry, "of the numbers themselves", uniform({3, 5}),
      [](const Tensor& x, const Shape& dims, bool keepdim) { return var(x, dims, keepdim, 0); },
      [](const Line& x) { return variance(x, 0); }, Result::same, {1}, false);
  Case& single =
      add(var_entry, "a single number, which has none", uniform({3, 1}), var_op, unbiased, Result::same, {1}, false);
  single.gradients = single.smooth = false;
  var_entry.error("integers", [] { var(arange(3)); });

  const bool where_equal = false;  // roots have no slope at 0
  const Reduction stddev_op = [](const Tensor& x, const Shape& dims, bool keepdim) { return stddev(x, dims, keepdim); };
  Entry& stddev_entry = reduction(
      entries, "stddev", stddev_op, [](const Line& x) { return oracle::sqrt(variance(x, 1)); }, Result::same,
      Derivatives::any, Accuracy::bounded, where_equal);
  add(
      stddev_entry, "equal numbers, gradient 0", zeros({3, 4}, f64), stddev_op, [](const Line&) { return Num(0); },
      Result::same, {1}, false)
      .smooth = false;
  stddev_entry.error("integers", [] { stddev(arange(3)); });

  const Reduction norm_op = [](const Tensor& x, const Shape& dims, bool keepdim) { return norm(x, 2, dims, keepdim); };
  Entry& norm_entry = reduction(
      entries, "norm", norm_op, [](const Line& x) { return norm_of(x, 2); }, Result::same);
  add_small(
      norm_entry, norm_op, [](const Line& x) { return x.empty() ? Num(0) : norm_of(x, 2); }, Result::same, true);
  for (double p : {1.0, 0.0, 3.0, 0.5, -1.0, kInf, -kInf})
    add(
        norm_entry, fmt::format("p = {}", p), uniform({3, 5}),
        [p](const Tensor& x, const Shape& dims, bool keepdim) { return norm(x, p, dims, keepdim); },
        [p](const Line& x) { return norm_of(x, p); }, Result::same, {1}, false)
        .smooth = p != 0;
  add(
      norm_entry, "zeros, gradient 0", zeros({3, 4}, f64), norm_op, [](const Line&) { return Num(0); }, Result::same,
      {1}, false)
      .smooth = false;
  add(
      norm_entry, "squares above the range of f16", full({4}, 300, f64), norm_op,
      [](const Line& x) { return norm_of(x, 2); }, Result::same, {}, false);
  norm_entry.error("integers", [] { norm(arange(3)); });
  norm_entry.error("p = NaN", [] { norm(ones({3}), std::numeric_limits<double>::quiet_NaN()); });

  Entry& lse_entry = reduction(entries, "logsumexp", logsumexp, oracle::log_sum_exp, Result::same);
  add_small(lse_entry, logsumexp, oracle::log_sum_exp, Result::same, true);
  add_special(lse_entry, logsumexp, oracle::log_sum_exp, Result::same);
  add(lse_entry, "powers above any range", full({3, 4}, 2000, f64), logsumexp, oracle::log_sum_exp, Result::same, {1},
      false)
      .smooth = false;
  lse_entry.error("integers", [] { logsumexp(arange(3)); });
}

}  // namespace

void register_reductions(Entries& entries) {
  register_sums(entries);
  register_extrema(entries);
  register_statistics(entries);
}

}  // namespace halfgrad::testing
