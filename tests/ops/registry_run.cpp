#include "tests/ops/registry_run.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/autograd.h"

namespace halfgrad::testing {

namespace {

// An input of a run: a leaf with the values of `x` in a dtype and a layout.
Tensor leaf_of(const Tensor& x, DType dtype, Layout layout, Device device, bool requires_grad) {
  const Tensor y = arrange_in((is_floating(x.dtype()) ? x.to(dtype) : x).to(device), layout).detach();
  return requires_grad && is_floating(y.dtype()) ? Tensor(y).requires_grad_() : y;
}

// The roundings of a run: f16 is computed in f32; where dtypes are mixed the least precise one counts.
oracle::Precision precision_of_run(const Tensors& x) {
  DType least = f64;
  for (const Tensor& input : x)
    if (input.dtype() != f64) least = input.dtype() == f16 || least == f16 ? f16 : f32;
  return oracle::precision_of(least);
}

// The inputs whose gradients are asked for.
Tensors wanted_of(const Tensors& x) {
  Tensors wanted;
  for (const Tensor& input : x)
    if (input.requires_grad()) wanted.push_back(input);
  return wanted;
}

// The oracle's gradients of one output of a run.
Arrays slopes_of(const Array& y, const Tensors& x, const Arrays& exact) {
  std::vector<Num> leaves;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].requires_grad()) leaves.insert(leaves.end(), exact[i].values.begin(), exact[i].values.end());
  const std::vector<oracle::Approx> slopes = oracle::backward(y.values, random_gradient(y.values.size()), leaves);
  Arrays gradients;
  std::size_t at = 0;
  for (const Tensor& input : wanted_of(x)) {
    Array& gradient = gradients.emplace_back(input.shape(), input.dtype());
    for (Num& v : gradient.values) v = Num(slopes[at++], -1);
  }
  return gradients;
}

// The gradients of one output of a run, against the oracle's.
void check_gradients(const std::string& where, const Tensor& y, const Arrays& expected, const Tensors& x,
                     bool create_graph) {
  const Tensors wanted = wanted_of(x);
  if (wanted.empty()) return;
  const std::vector<double> dy = random_gradient(static_cast<std::size_t>(y.numel()));
  Tensors dx(wanted.size());
  if (y.requires_grad())
    dx = grad(y, wanted, from_vector(dy, y.shape()).to(y.dtype()).to(y.device()), /*retain_graph=*/true, create_graph);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::vector<Num>& slopes = expected[i].values;
    const bool all_zero = std::all_of(slopes.begin(), slopes.end(), [](const Num& v) { return v.value == 0; });
    if (!dx[i].defined() && all_zero) continue;
    const std::string wrong = mismatch(dx[i], expected[i], kSlack);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: gradient of input {}{}: {}", where, i,
                                             create_graph ? " with create_graph" : "", wrong));
  }
}

}  // namespace

std::string title(const Entry& entry, const Case& c, Layout layout) {
  return fmt::format("{} / {} / {}", entry.name, c.name, name_of(layout));
}

std::string name_of(const Run& run) {
  return fmt::format("{} / {}", title(run.entry, run.c, run.layout),
                     run.c.dtypes.empty() ? "as given" : halfgrad::name_of(run.dtype));
}

std::vector<Layout> layouts_of(const Case& c) {
  std::vector<Layout> layouts;
  for (Layout layout : kLayouts) {
    const bool any = std::any_of(c.inputs.begin(), c.inputs.end(), [&](const Tensor& x) { return applies(layout, x); });
    if (layout == Layout::plain || (any && c.layouts && (c.repeats || layout != Layout::expanded)))
      layouts.push_back(layout);
  }
  return layouts;
}

std::vector<DType> dtypes_of(const Case& c) { return c.dtypes.empty() ? std::vector<DType>{f32} : c.dtypes; }

Tensors inputs_of(const Run& run, bool requires_grad) {
  Tensors x;
  for (const Tensor& input : run.c.inputs)
    x.push_back(
        leaf_of(input, run.c.dtypes.empty() ? input.dtype() : run.dtype, run.layout, run.device, requires_grad));
  return x;
}

std::vector<double> random_gradient(std::size_t n) {
  std::vector<double> values(n);
  std::uint32_t state = 12345;
  for (double& v : values) {
    state = state * 1664525 + 1013904223;
    v = (static_cast<double>(state >> 26) - 31.5) / 16;
  }
  return values;
}

Expected expected_of(const Run& run, const Tensors& inputs, bool gradients) {
  oracle::start(precision_of_run(inputs));
  Arrays exact;
  for (const Tensor& input : inputs) exact.push_back(exact_inputs(input));
  Expected expected{run.c.oracle(exact), {}};
  if (gradients)
    for (const Array& y : expected.values) expected.gradients.push_back(slopes_of(y, inputs, exact));
  return expected;
}

void check_run(const Run& run, bool gradients) {
  const Tensors x = inputs_of(run, gradients);
  const oracle::Precision precision = precision_of_run(x);
  std::vector<std::uint32_t> versions;
  for (const Tensor& input : x) versions.push_back(input.version());
  const Expected expected = expected_of(run, x, gradients);
  const Tensors y = run.c.op(x);
  const std::string name = name_of(run);
  REQUIRE_MESSAGE(y.size() == expected.values.size(), name);

  for (std::size_t k = 0; k < y.size(); ++k) {
    const std::string where = fmt::format("{}: output {}", name, k);
    const std::string wrong =
        mismatch(y[k], expected.values[k], run.entry.accuracy == Accuracy::rounded_once ? 0 : kSlack);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: {}", where, wrong));
    if (!gradients) continue;
    check_gradients(where, y[k], expected.gradients[k], x, false);
    // A gradient that is to be differentiated again is made of ops, each of which rounds: in f16, more often
    // than the oracle counts.
    if (run.entry.derivatives == Derivatives::any && precision.storage == precision.unit)
      check_gradients(where, y[k], expected.gradients[k], x, /*create_graph=*/true);
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK_MESSAGE(x[i].version() == versions[i], fmt::format("{}: input {} was changed in place", name, i));
}

}  // namespace halfgrad::testing
