// Every op of the registry on a GPU, in every dtype and layout: against the oracle, as on the CPU, and against the CPU.

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "engine/random.h"
#include "tests/cuda/ulps.h"
#include "tests/ops/registry_run.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// --- how closely a GPU must agree with the CPU ------------------------------------------------------------------------

// IEEE arithmetic is the same everywhere, bit for bit: that is demanded of every op that is on neither of these lists.
//
// Functions of libraries are not: ulps.h says which these are. Their gradients are formulas with errors of their own, for
// which the bound below is demanded.
//
// Sums depend on their order, which is not the same on both sides. Whatever it is, the oracle (tests/ops/oracle.h) derives
// how far the result may be from the exact one, v: by no more than e, so that what is stored lies between round(v - e) and
// round(v + e), on either side. So the two are no further apart than these.
const std::set<std::string> kSums = {"avg_pool2d",
                                     "batch_norm",
                                     "binary_cross_entropy_with_logits",
                                     "conv2d",
                                     "conv2d_input_gradient",
                                     "conv2d_weight_gradient",
                                     "conv_transpose2d",
                                     "cross_entropy",
                                     "cumsum",
                                     "l1_loss",
                                     "layer_norm",
                                     "linear",
                                     "log_softmax",
                                     "logsumexp",
                                     "matmul",
                                     "mean",
                                     "mse_loss",
                                     "nll_loss",
                                     "norm",
                                     "prod",
                                     "smooth_l1_loss",
                                     "softmax",
                                     "stddev",
                                     "sum",
                                     "var"};

// ... as are the gradients of what these have broadcast.
const std::set<std::string> kBroadcast = {"add", "div", "expand", "maximum", "minimum", "mul", "pow", "sub", "where"};

struct Agreement {
  bool in_bound = false;
  std::uint64_t ulps = 0;  // otherwise
};
constexpr Agreement kInBits = {}, kInBound = {.in_bound = true};

Agreement of_values(const Entry& entry, DType dtype) {
  if (kSums.contains(entry.name)) return kInBound;
  return kFunctions.contains(entry.name) ? Agreement{.ulps = ulps_of_function(entry.name, dtype)} : kInBits;
}
Agreement of_gradient(const Entry& entry, const Tensor& input, const Tensor& output) {
  const bool is_sum = kBroadcast.contains(entry.name) && input.numel() < output.numel();
  const bool is_function = kFunctions.contains(entry.name) && ulps_of_function(entry.name, output.dtype()) > 0;
  return is_sum || kSums.contains(entry.name) || is_function ? kInBound : kInBits;
}

bool agree_in_bound(double a, double b, const Interval& accepted) {
  if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b))
    return a == b || (std::isnan(a) && std::isnan(b));
  return std::abs(a - b) <= accepted.high - accepted.low;
}

template <class T>
std::string difference(const Tensor& found, const Tensor& expected, Agreement agreement, const Array& exact) {
  const std::vector<T> a = found.to_vector<T>(), b = expected.to_vector<T>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    const Interval interval = accepted(exact.values[i], found.dtype(), kSlack);
    if (agreement.in_bound && !agree_in_bound(x, y, interval))
      return fmt::format("element {} is {}, on the CPU {}, expected within {}", i, x, y, interval.high - interval.low);
    if (!agreement.in_bound && !agree_in_ulps(a[i], b[i], agreement.ulps))
      return fmt::format("element {} is {}, on the CPU {}, expected within {} ulp", i, x, y, agreement.ulps);
  }
  return "";
}

// What is wrong with `found`, if it is to agree with `expected` and `exact` is what the oracle says; empty when nothing is.
std::string difference(const Tensor& found, const Tensor& expected, Agreement agreement, const Array& exact) {
  if (found.defined() != expected.defined()) return "one of them is undefined";
  if (!found.defined()) return "";
  if (found.shape() != expected.shape() || found.strides() != expected.strides() || found.dtype() != expected.dtype())
    return fmt::format("{} {} with strides {}, on the CPU {} {} with {}", halfgrad::name_of(found.dtype()),
                       found.shape(), found.strides(), halfgrad::name_of(expected.dtype()), expected.shape(),
                       expected.strides());
  return visit_dtype(found.dtype(), [&]<class T>(T) {
    using Number = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
    return difference<Number>(found, expected, agreement, exact);
  });
}

// --- runs ------------------------------------------------------------------------------------------------------------

Run on(Device device, const Run& run) { return {run.entry, run.c, run.dtype, run.layout, device}; }

template <class F>
void for_runs(F&& f) {
  for (const Entry& entry : registry())
    for (const Case& c : entry.cases)
      for (Layout layout : layouts_of(c))
        for (DType dtype : dtypes_of(c)) f(Run{entry, c, dtype, layout, Device::cuda()});
}

// The outputs of a run, or the gradients of its inputs by each of them, with how they must agree.
struct Result {
  Tensor tensor;
  Agreement agreement;
};

std::vector<Result> values_of(const Run& run) {
  std::vector<Result> results;
  manual_seed(1);
  for (const Tensor& y : run.c.op(inputs_of(run, false))) results.push_back({y, of_values(run.entry, y.dtype())});
  return results;
}

std::vector<Result> gradients_of(const Run& run) {
  std::vector<Result> results;
  Tensors wanted;
  const Tensors x = inputs_of(run, true);
  for (const Tensor& input : x)
    if (input.requires_grad()) wanted.push_back(input);
  manual_seed(1);
  for (const Tensor& y : run.c.op(x)) {
    if (wanted.empty()) continue;
    const std::vector<double> dy = random_gradient(static_cast<std::size_t>(y.numel()));
    Tensors dx(wanted.size());
    if (y.requires_grad()) dx = grad(y, wanted, from_vector(dy, y.shape()).to(y.dtype()).to(y.device()), true);
    for (std::size_t i = 0; i < dx.size(); ++i) results.push_back({dx[i], of_gradient(run.entry, wanted[i], y)});
  }
  return results;
}

// Runs results_of(run) on the GPU and on the CPU. Returns how many tensors were compared.
template <class F>
std::size_t compare(const Run& run, const char* what, F&& results_of, bool gradients) {
  const std::vector<Result> found = results_of(run);
  const Run same = on(Device::cpu(), run);
  const std::vector<Result> expected = results_of(same);
  const Expected oracle = expected_of(same, inputs_of(same, gradients), gradients);
  Arrays exact = oracle.values;
  if (gradients) {
    exact.clear();
    for (const Arrays& of_output : oracle.gradients) exact.insert(exact.end(), of_output.begin(), of_output.end());
  }
  REQUIRE(found.size() == expected.size());
  REQUIRE(found.size() == exact.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].tensor.defined()) CHECK(found[i].tensor.device() == run.device);
    const std::string wrong = difference(found[i].tensor, expected[i].tensor, found[i].agreement, exact[i]);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: {} {}: {}", name_of(run), what, i, wrong));
  }
  return found.size();
}

}  // namespace

TEST_CASE("every op gives the oracle's values and gradients on the GPU") {
  for_runs([&](const Run& run) {
    CAPTURE(name_of(run));
    manual_seed(1);
    CHECK_NOTHROW(check_run(run, run.c.gradients));
  });
}

TEST_CASE("every op gives the CPU's values, in the CPU's order of memory") {
  std::size_t compared = 0;
  for_runs([&](const Run& run) {
    CAPTURE(name_of(run));
    CHECK_NOTHROW(compared += compare(run, "output", values_of, false));
  });
  CHECK(compared > 14000);
}

TEST_CASE("every op gives the CPU's gradients, in the CPU's order of memory") {
  std::size_t compared = 0;
  for_runs([&](const Run& run) {
    if (!run.c.gradients) return;
    CAPTURE(name_of(run));
    CHECK_NOTHROW(compared += compare(run, "gradient", gradients_of, true));
  });
  CHECK(compared > 14000);
}
