#include "tests/ops/registry.h"

#include <algorithm>
#include <limits>

#include "engine/random.h"

namespace halfgrad::testing {

Case& Entry::add(std::string case_name, Tensors inputs, Op op, Oracle oracle) {
  cases.push_back(
      {.name = std::move(case_name), .inputs = std::move(inputs), .op = std::move(op), .oracle = std::move(oracle)});
  if (derivatives == Derivatives::none) cases.back().gradients = cases.back().smooth = false;
  return cases.back();
}

Case& Entry::add(std::string case_name, Tensors inputs, Op1 op, Oracle1 oracle) {
  return add(std::move(case_name), std::move(inputs), Op([op](const Tensors& x) { return Tensors{op(x)}; }),
             Oracle([oracle](const Arrays& x) { return Arrays{oracle(x)}; }));
}

Entry& Entry::error(std::string what, std::function<void()> call) {
  errors.push_back({std::move(what), std::move(call)});
  return *this;
}

Entry& make_entry(std::vector<Entry>& entries, std::string name, Derivatives derivatives, Accuracy accuracy) {
  entries.push_back(
      {.name = std::move(name), .accuracy = accuracy, .derivatives = derivatives, .cases = {}, .errors = {}});
  return entries.back();
}

const std::vector<Entry>& registry() {
  static const std::vector<Entry> entries = [] {
    std::vector<Entry> all;
    register_elementwise(all);
    register_selection(all);
    register_views(all);
    register_reductions(all);
    register_products(all);
    register_windows(all);
    register_indexing(all);
    register_joins(all);
    register_norms(all);
    register_losses(all);
    return all;
  }();
  return entries;
}

// --- sample inputs -----------------------------------------------------------------------------------------

Tensor uniform(const Shape& shape, double low, double high, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = low + (high - low) * generator.next_uniform();
  return from_vector(values, shape);
}

Tensor distinct(const Shape& shape, double gap, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<double> values;
  for (std::int64_t i : random_permutation(shape.numel(), generator))
    values.push_back(gap * (static_cast<double>(i - shape.numel() / 2) + 0.5));
  return from_vector(values, shape);
}

Tensor integers(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t& v : values)
    v = low + static_cast<std::int64_t>(generator.next_below(static_cast<std::uint64_t>(high - low)));
  return from_vector(values, shape);
}

Tensor whole_numbers(const Shape& shape, double low, double high, DType dtype, std::uint64_t seed) {
  const double lowest = dtype == u8 || dtype == boolean ? std::max(low, 0.0) : low;
  const auto first = static_cast<std::int64_t>(std::ceil(lowest));
  return integers(shape, first, static_cast<std::int64_t>(std::floor(high)) + 1, seed).to(dtype);
}

Tensor special_values() {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values = {0,     1,     0x1p-14, 0x1p-14 - 0x1p-24, 0x1p-24, 0x1p-25, 0x1.8p-25,
                                65504, 65519, 65520,   1 + 0x1p-10,       inf};
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) values.push_back(-values[i]);
  values.push_back(nan);
  return from_vector(values);
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::plain:
      return "plain";
    case Layout::transposed:
      return "transposed";
    case Layout::sliced:
      return "sliced";
    case Layout::channels_last:
      return "channels-last";
    case Layout::expanded:
      return "expanded";
  }
  return "?";
}

bool applies(Layout layout, const Tensor& x) {
  switch (layout) {
    case Layout::plain:
      return true;
    case Layout::transposed:
      return x.rank() >= 2;
    case Layout::sliced:
      return x.rank() >= 1;
    case Layout::channels_last:
      return x.rank() == 4;
    case Layout::expanded:
      return x.rank() >= 1 && x.shape()[0] > 1;
  }
  return false;
}

Tensor arrange_in(const Tensor& x, Layout layout) {
  if (!applies(layout, x)) return x;
  switch (layout) {
    case Layout::plain:
      return x;
    case Layout::transposed:
      return x.transpose(-1, -2).contiguous().transpose(-1, -2);
    case Layout::sliced: {  // every element twice; take the second ones
      Shape doubled = x.shape();
      doubled.push_back(2);
      return x.unsqueeze(-1).expand(doubled).contiguous().select(-1, 1);
    }
    case Layout::channels_last:
      return x.channels_last();
    case Layout::expanded:
      return x.slice(0, 0, 1).expand(x.shape());
  }
  return x;
}

// --- comparison --------------------------------------------------------------------------------------------

Array exact_inputs(const Tensor& x) {
  Array array(x.shape(), x.dtype());
  const std::vector<double> values = x.to_vector<double>();
  std::transform(values.begin(), values.end(), array.values.begin(), oracle::input);
  return array;
}

namespace {

double rounded_to(double value, DType dtype) {
  if (dtype == f16) return static_cast<float>(half(value));
  if (dtype == f32) return static_cast<float>(value);
  return value;
}

// Results below the smallest normal number of the arithmetic may lose all of their bits.
double smallest_normal(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::min() : static_cast<double>(std::numeric_limits<float>::min());
}

}  // namespace

Interval accepted(const oracle::Approx& expected, DType dtype, double slack) {
  if (slack == 0 || !std::isfinite(expected.value)) {
    const double value = rounded_to(expected.value, dtype);
    return {value, value};
  }
  const double error = slack * expected.error + (expected.error > 0 ? smallest_normal(dtype) : 0);
  return {rounded_to(expected.value - error, dtype), rounded_to(expected.value + error, dtype)};
}

std::string mismatch(const Tensor& found, const Array& expected, double slack) {
  if (!found.defined()) return "the tensor is undefined";
  if (found.shape() != expected.shape)
    return fmt::format("shape {}, expected {}", found.shape().str(), expected.shape.str());
  if (found.dtype() != expected.dtype)
    return fmt::format("dtype {}, expected {}", halfgrad::name_of(found.dtype()), halfgrad::name_of(expected.dtype));
  const std::vector<double> values = found.to_vector<double>();
  double largest = 0;  // of the expected values, to see that the bounds mean something
  for (const Num& x : expected.values)
    if (std::isfinite(x.value)) largest = std::max(largest, std::abs(x.value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Num& x = expected.values[i];
    if (slack > 0 && std::isfinite(x.value) && !(slack * x.error <= 0.03 * (largest + 1)))
      return fmt::format("the bound {:.3g} of element {} (value {:.6g}) accepts anything", slack * x.error, i, x.value);
    if (!accepted(x, found.dtype(), slack).holds(values[i]))
      return fmt::format("element {} of {} is {:.17g}, expected {:.17g} within {:.3g}", i, expected.shape.str(),
                         values[i], x.value, slack * x.error);
  }
  return "";
}

}  // namespace halfgrad::testing
