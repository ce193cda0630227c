// Every op of the registry on a GPU, in every dtype and layout: against the oracle, as on the CPU, and against the CPU.

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "engine/random.h"
#include "tests/ops/registry_run.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// The ops that need a kernel which the CUDA backend does not have yet, for their values or only for their gradients. An op
// that needs none any more must leave its list: the tests see to that.
const std::set<std::string> kValuesNotThereYet = {"adaptive_avg_pool2d",
                                                  "all",
                                                  "any",
                                                  "argmax",
                                                  "argmin",
                                                  "avg_pool2d",
                                                  "batch_norm",
                                                  "binary_cross_entropy_with_logits",
                                                  "conv2d",
                                                  "conv2d_input_gradient",
                                                  "conv2d_weight_gradient",
                                                  "conv_transpose2d",
                                                  "cross_entropy",
                                                  "cumsum",
                                                  "embedding",
                                                  "flip",
                                                  "gather",
                                                  "index_add",
                                                  "index_select",
                                                  "l1_loss",
                                                  "layer_norm",
                                                  "linear",
                                                  "log_softmax",
                                                  "logsumexp",
                                                  "matmul",
                                                  "max",
                                                  "max_pool2d",
                                                  "mean",
                                                  "min",
                                                  "mse_loss",
                                                  "nll_loss",
                                                  "norm",
                                                  "one_hot",
                                                  "prod",
                                                  "scatter_add",
                                                  "smooth_l1_loss",
                                                  "softmax",
                                                  "stddev",
                                                  "sum",
                                                  "var"};
const std::set<std::string> kGradientsNotThereYet = {"add", "div", "expand", "maximum", "minimum",
                                                     "mul", "pow", "sub",    "where"};

// IEEE arithmetic is the same everywhere, bit for bit. The functions of <cmath> are not: these are the largest differences
// in units of the last place, the errors that the CUDA programming guide lists plus one for the C library's. An op that is
// not here must agree exactly.
const std::map<std::string, std::uint64_t> kUlps = {
    {"exp", 2},  {"expm1", 2},   {"log", 2},  {"log1p", 2}, {"sin", 3}, {"cos", 3},      {"tanh", 3}, {"erf", 3},
    {"erfc", 6}, {"sigmoid", 4}, {"gelu", 6}, {"silu", 4},  {"elu", 3}, {"softplus", 4}, {"pow", 5},
};

// --- the distance of two tensors -------------------------------------------------------------------------------------

// The numbers of a type in their order: neighbours are 1 apart, and both zeros are 0.
std::int64_t in_order(half x) { return x.bits() & 0x8000 ? -std::int64_t{x.bits() & 0x7FFF} : std::int64_t{x.bits()}; }
std::int64_t in_order(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bits >> 31 ? -static_cast<std::int64_t>(bits & 0x7FFFFFFF) : static_cast<std::int64_t>(bits);
}
std::int64_t in_order(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return bits >> 63 ? -static_cast<std::int64_t>(bits & INT64_MAX) : static_cast<std::int64_t>(bits);
}

// What is wrong with `found`, if it is to be `expected` within `ulps`; empty when nothing is.
template <class T>
std::string difference(const Tensor& found, const Tensor& expected, std::uint64_t ulps) {
  const std::vector<T> a = found.to_vector<T>(), b = expected.to_vector<T>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    bool same = a[i] == b[i];
    if constexpr (!std::is_integral_v<T>) {
      const float x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
      const std::int64_t p = in_order(a[i]), q = in_order(b[i]);
      const auto distance = static_cast<std::uint64_t>(p > q ? p - q : q - p);
      same = std::isnan(x) || std::isnan(y) ? std::isnan(x) && std::isnan(y)
                                            : std::signbit(x) == std::signbit(y) && distance <= ulps;
    }
    if (!same)
      return fmt::format("element {} is {}, on the CPU {}, expected within {} ulp", i, static_cast<double>(a[i]),
                         static_cast<double>(b[i]), ulps);
  }
  return "";
}

std::string difference(const Tensor& found, const Tensor& expected, std::uint64_t ulps) {
  if (found.defined() != expected.defined()) return "one of them is undefined";
  if (!found.defined()) return "";
  if (found.shape() != expected.shape() || found.strides() != expected.strides() || found.dtype() != expected.dtype())
    return fmt::format("{} {} with strides {}, on the CPU {} {} with {}", halfgrad::name_of(found.dtype()),
                       found.shape(), found.strides(), halfgrad::name_of(expected.dtype()), expected.shape(),
                       expected.strides());
  return visit_dtype(found.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      return difference<std::uint8_t>(found, expected, ulps);
    else
      return difference<T>(found, expected, ulps);
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

// Runs f; true when it needed a kernel that is not there yet.
template <class F>
bool is_missing(F&& f) {
  try {
    f();
    return false;
  } catch (const Error& error) {
    if (std::string(error.what()).find("is not in this build yet") == std::string::npos) throw;
    return true;
  }
}

// Of the entries in which something was missing, those that are not in `list`, and the reverse, are failures.
void check_list(const char* what, const std::set<std::string>& list, const std::set<std::string>& missing) {
  for (const std::string& op : missing)
    CHECK_MESSAGE(list.contains(op), fmt::format("the {} of {} need a kernel that is not there", what, op));
  for (const std::string& op : list)
    CHECK_MESSAGE(missing.contains(op), fmt::format("the {} of {} are there: take it off the list", what, op));
}

Tensors gradients_of(const Run& run) {
  Tensors wanted, gradients;
  const Tensors x = inputs_of(run, true);
  for (const Tensor& input : x)
    if (input.requires_grad()) wanted.push_back(input);
  for (const Tensor& y : run.c.op(x)) {
    if (wanted.empty() || !y.requires_grad()) continue;
    const std::vector<double> dy = random_gradient(static_cast<std::size_t>(y.numel()));
    for (const Tensor& dx : grad(y, wanted, from_vector(dy, y.shape()).to(y.dtype()).to(y.device()), true))
      gradients.push_back(dx);
  }
  return gradients;
}

void compare(const Run& run, const Tensors& found, const Tensors& expected, std::uint64_t ulps, const char* what) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].defined()) CHECK(found[i].device() == run.device);
    const std::string wrong = difference(found[i], expected[i], ulps);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: {} {}: {}", name_of(run), what, i, wrong));
  }
}

}  // namespace

TEST_CASE("every op gives the oracle's values and gradients on the GPU, or is on a list") {
  std::set<std::string> values_missing, gradients_missing;
  for_runs([&](const Run& run) {
    CAPTURE(name_of(run));
    CHECK_NOTHROW([&] {
      manual_seed(1);
      if (is_missing([&] { check_run(run, false); }))
        values_missing.insert(run.entry.name);
      else if (run.c.gradients && is_missing([&] { check_run(run, true); }))
        gradients_missing.insert(run.entry.name);
    }());
  });
  for (const std::string& op : values_missing) gradients_missing.erase(op);
  check_list("values", kValuesNotThereYet, values_missing);
  check_list("gradients", kGradientsNotThereYet, gradients_missing);
}

TEST_CASE("every op gives the CPU's values, in the CPU's order of memory") {
  std::size_t compared = 0;
  for_runs([&](const Run& run) {
    CAPTURE(name_of(run));
    const auto known = kUlps.find(run.entry.name);
    // A half that lies near the middle of two may be rounded either way.
    const std::uint64_t ulps = known == kUlps.end() ? 0 : run.dtype == f16 ? 1 : known->second;
    CHECK_NOTHROW([&] {
      Tensors found;
      manual_seed(1);
      if (is_missing([&] { found = run.c.op(inputs_of(run, false)); })) return;
      manual_seed(1);
      compare(run, found, run.c.op(inputs_of(on(Device::cpu(), run), false)), ulps, "output");
      compared += found.size();
    }());
  });
  CHECK(compared > 5000);
}

TEST_CASE("the gradients of exact ops are those of the CPU, bit for bit") {
  std::size_t compared = 0;
  for_runs([&](const Run& run) {
    if (kUlps.contains(run.entry.name) || !run.c.gradients) return;
    CAPTURE(name_of(run));
    CHECK_NOTHROW([&] {
      Tensors found;
      manual_seed(1);
      if (is_missing([&] { found = gradients_of(run); })) return;
      manual_seed(1);
      compare(run, found, gradients_of(on(Device::cpu(), run)), 0, "gradient");
      compared += found.size();
    }());
  });
  CHECK(compared > 2000);
}
