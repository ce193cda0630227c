// Runs every entry of the registry through the same checks, and sees to it that every op has an entry.

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/autograd.h"
#include "engine/gradcheck.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// An op may compute the same by another formula than the oracle, with its roundings in other places; and in
// f64 the oracle's own errors are as large as those of the op.
constexpr double kSlack = 2;

constexpr std::int64_t kLargestGradcheck = 300;  // elements of all inputs together
constexpr std::int64_t kLargestGradgradcheck = 80;

std::string title(const Entry& entry, const Case& c, Layout layout) {
  return fmt::format("{} / {} / {}", entry.name, c.name, name_of(layout));
}

// The memory layouts in which a case is run: those that make a difference for one of its inputs.
std::vector<Layout> layouts_of(const Case& c) {
  std::vector<Layout> layouts;
  for (Layout layout : kLayouts) {
    const bool any = std::any_of(c.inputs.begin(), c.inputs.end(), [&](const Tensor& x) { return applies(layout, x); });
    if (layout == Layout::plain || (any && c.layouts && (c.repeats || layout != Layout::expanded)))
      layouts.push_back(layout);
  }
  return layouts;
}

// An input of a run: a leaf with the values of `x` in a dtype and a layout.
Tensor leaf_of(const Tensor& x, DType dtype, Layout layout, bool requires_grad) {
  const Tensor y = arrange_in(is_floating(x.dtype()) ? x.to(dtype) : x, layout).detach();
  return requires_grad && is_floating(y.dtype()) ? Tensor(y).requires_grad_() : y;
}

Tensors inputs_of(const Case& c, DType dtype, Layout layout, bool requires_grad) {
  Tensors x;
  for (const Tensor& input : c.inputs)
    x.push_back(leaf_of(input, c.dtypes.empty() ? input.dtype() : dtype, layout, requires_grad));
  return x;
}

std::vector<DType> dtypes_of(const Case& c) { return c.dtypes.empty() ? std::vector<DType>{f32} : c.dtypes; }

// The roundings of a run: f16 is computed in f32; where dtypes are mixed the least precise one counts.
oracle::Precision precision_of_run(const Tensors& x) {
  DType least = f64;
  for (const Tensor& input : x)
    if (input.dtype() != f64) least = input.dtype() == f16 || least == f16 ? f16 : f32;
  return oracle::precision_of(least);
}

// Short numbers that are exact in f16.
std::vector<double> random_gradient(std::size_t n) {
  std::vector<double> values(n);
  std::uint32_t state = 12345;
  for (double& v : values) {
    state = state * 1664525 + 1013904223;
    v = (static_cast<double>(state >> 26) - 31.5) / 16;
  }
  return values;
}

// The gradients of one output of a run, against the oracle's.
void check_gradients(const std::string& where, const Tensor& y, const Array& expected, const Tensors& x,
                     const Arrays& exact, bool create_graph) {
  Tensors wanted;
  std::vector<Num> leaves;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!x[i].requires_grad()) continue;
    wanted.push_back(x[i]);
    leaves.insert(leaves.end(), exact[i].values.begin(), exact[i].values.end());
  }
  if (wanted.empty()) return;
  const std::vector<double> dy = random_gradient(expected.values.size());
  Tensors dx(wanted.size());
  if (y.requires_grad())
    dx = grad(y, wanted, from_vector(dy, y.shape()).to(y.dtype()), /*retain_graph=*/true, create_graph);
  const std::vector<oracle::Approx> slopes = oracle::backward(expected.values, dy, leaves);
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Array slope(wanted[i].shape(), wanted[i].dtype());
    bool all_zero = true;
    for (Num& v : slope.values) {
      v = Num(slopes[at++], -1);
      all_zero = all_zero && v.value == 0;
    }
    if (!dx[i].defined() && all_zero) continue;
    const std::string wrong = mismatch(dx[i], slope, kSlack);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: gradient of input {}{}: {}", where, i,
                                             create_graph ? " with create_graph" : "", wrong));
  }
}

void check_values_and_gradients(const Entry& entry, const Case& c, DType dtype, Layout layout) {
  const Tensors x = inputs_of(c, dtype, layout, c.gradients);
  const oracle::Precision precision = precision_of_run(x);
  oracle::start(precision);
  Arrays exact;
  std::vector<std::uint32_t> versions;
  for (const Tensor& input : x) {
    exact.push_back(exact_inputs(input));
    versions.push_back(input.version());
  }
  const Arrays expected = c.oracle(exact);
  const Tensors y = c.op(x);
  const std::string run =
      fmt::format("{} / {}", title(entry, c, layout), c.dtypes.empty() ? "as given" : halfgrad::name_of(dtype));
  REQUIRE_MESSAGE(y.size() == expected.size(), run);

  for (std::size_t k = 0; k < y.size(); ++k) {
    const std::string where = fmt::format("{}: output {}", run, k);
    const std::string wrong = mismatch(y[k], expected[k], entry.accuracy == Accuracy::rounded_once ? 0 : kSlack);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}: {}", where, wrong));
    if (!c.gradients) continue;
    check_gradients(where, y[k], expected[k], x, exact, false);
    // A gradient that is to be differentiated again is made of ops, each of which rounds: in f16, more often
    // than the oracle counts.
    if (entry.derivatives == Derivatives::any && precision.storage == precision.unit)
      check_gradients(where, y[k], expected[k], x, exact, /*create_graph=*/true);
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK_MESSAGE(x[i].version() == versions[i], fmt::format("{}: input {} was changed in place", run, i));
}

std::int64_t elements_of(const Case& c) {
  std::int64_t n = 0;
  for (const Tensor& x : c.inputs) n += x.numel();
  return n;
}

bool differentiable(const Case& c) {
  return c.gradients && c.smooth && !c.dtypes.empty() &&
         std::any_of(c.inputs.begin(), c.inputs.end(),
                     [](const Tensor& x) { return is_floating(x.dtype()) && x.numel() > 0; });
}

// The op behind the layout, as a function of row-major inputs.
GradcheckFunctions laid_out(const Case& c, Layout layout) {
  return [&c, layout](const Tensors& x) {
    Tensors arranged;
    for (const Tensor& input : x) arranged.push_back(arrange_in(input, layout));
    return c.op(arranged);
  };
}

}  // namespace

TEST_CASE("every op gives the oracle's values and gradients in every dtype and layout") {
  for (const Entry& entry : registry())
    for (const Case& c : entry.cases)
      for (Layout layout : layouts_of(c))
        for (DType dtype : dtypes_of(c)) {
          CAPTURE(title(entry, c, layout));
          CHECK_NOTHROW(check_values_and_gradients(entry, c, dtype, layout));
        }
}

TEST_CASE("every differentiable op passes gradcheck") {
  for (const Entry& entry : registry()) {
    bool checked = entry.derivatives == Derivatives::none;
    for (const Case& c : entry.cases) {
      if (!differentiable(c) || elements_of(c) > kLargestGradcheck) continue;
      for (Layout layout : layouts_of(c)) {
        if (layout == Layout::expanded) continue;  // makes ties
        CAPTURE(title(entry, c, layout));
        CHECK_NOTHROW([&] {
          const GradcheckReport report = gradcheck(laid_out(c, layout), c.inputs);
          CHECK_MESSAGE(report.ok, fmt::format("{}: {}", title(entry, c, layout), report.message));
        }());
        checked = true;
      }
    }
    CHECK_MESSAGE(checked, fmt::format("{} has no case for gradcheck", entry.name));
  }
}

TEST_CASE("ops that are differentiable twice pass gradgradcheck") {
  for (const Entry& entry : registry()) {
    bool checked = entry.derivatives != Derivatives::any;
    for (const Case& c : entry.cases) {
      if (entry.derivatives != Derivatives::any || !differentiable(c) || elements_of(c) > kLargestGradgradcheck)
        continue;
      CAPTURE(title(entry, c, Layout::plain));
      CHECK_NOTHROW([&] {
        const GradcheckReport report = gradgradcheck(c.op, c.inputs);
        CHECK_MESSAGE(report.ok, fmt::format("{}: {}", title(entry, c, Layout::plain), report.message));
      }());
      checked = true;
    }
    CHECK_MESSAGE(checked, fmt::format("{} has no case for gradgradcheck", entry.name));
  }
}

TEST_CASE("ops that are differentiable once say so when asked for more") {
  for (const Entry& entry : registry())
    for (const Case& c : entry.cases) {
      if (entry.derivatives != Derivatives::once || !differentiable(c)) continue;
      const Tensors x = inputs_of(c, f64, Layout::plain, true);
      const Tensor y = c.op(x)[0];
      const std::string where = title(entry, c, Layout::plain);
      try {
        Tensors wanted;
        for (const Tensor& input : x)
          if (input.requires_grad()) wanted.push_back(input);
        const Tensors dx = grad(y, wanted, ones_like(y), true, /*create_graph=*/true);
        grad(dx[0], wanted, ones_like(dx[0]));
        CHECK_MESSAGE(false, fmt::format("{}: no error, so the second gradient may be silently wrong", where));
      } catch (const Error& error) {
        CHECK_MESSAGE(std::string(error.what()).find(entry.name) != std::string::npos,
                      fmt::format("{}: {}", where, error.what()));
      }
    }
}

TEST_CASE("wrong arguments give an Error that names the op") {
  for (const Entry& entry : registry())
    for (const ErrorCase& wrong : entry.errors) {
      std::string message;
      try {
        wrong.call();
      } catch (const Error& error) {
        message = error.what();
      }
      CHECK_MESSAGE(
          message.find(entry.name) != std::string::npos,
          fmt::format("{} / {}: expected an Error that names the op, got '{}'", entry.name, wrong.what, message));
    }
}

TEST_CASE("an undefined input gives an Error or is optional, and never crashes") {
  for (const Entry& entry : registry())
    for (const Case& c : entry.cases)
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        Tensors x = c.inputs;
        x[i] = Tensor();
        try {
          for (const Tensor& y : c.op(x)) CHECK_MESSAGE(y.defined(), title(entry, c, Layout::plain));
        } catch (const Error& error) {
          CHECK_MESSAGE(std::string(error.what()).find("defined") != std::string::npos,
                        fmt::format("{} without input {}: {}", title(entry, c, Layout::plain), i, error.what()));
        }
      }
}

// --- completeness ------------------------------------------------------------------------------------------

namespace {

// The functions that are declared at this indentation: `Tensor name(` or `Tensors name(` at the start of a
// line.
std::set<std::string> declared_in(const std::string& text, const std::string& indentation = "") {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const std::string type : {"Tensor ", "Tensors "}) {
      if (!line.starts_with(indentation + type)) continue;
      const std::string rest = line.substr(indentation.size() + type.size());
      const auto end =
          std::find_if(rest.begin(), rest.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_'; });
      const std::string name(rest.begin(), end);
      if (!name.empty() && end != rest.end() && *end == '(' && !name.starts_with("operator")) names.insert(name);
    }
  return names;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Everything in engine/ops, and the members of Tensor that make a view or a copy of it.
std::set<std::string> declared_ops() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(HALFGRAD_SOURCE_ROOT "/engine/ops"))
    if (file.path().extension() == ".h") names.merge(declared_in(read(file.path())));
  const std::string text = read(HALFGRAD_SOURCE_ROOT "/engine/tensor.h");
  const std::size_t begin = text.find("// --- views"), end = text.find("// --- in place");
  REQUIRE_MESSAGE((begin < end && end != std::string::npos),
                  "engine/tensor.h has lost the comments between which its views are");
  names.merge(declared_in(text.substr(begin, end - begin), "  "));
  return names;
}

}  // namespace

TEST_CASE("every op that the headers declare has an entry, and every entry is an op") {
  std::set<std::string> entries;
  for (const Entry& entry : registry()) {
    CHECK_MESSAGE(entries.insert(entry.name).second, fmt::format("{} has two entries", entry.name));
    CHECK_MESSAGE(!entry.cases.empty(), fmt::format("{} has no cases", entry.name));
  }
  const std::set<std::string> ops = declared_ops();
  for (const std::string& op : ops)
    CHECK_MESSAGE(entries.contains(op), fmt::format("{} has no entry in tests/ops/registry_*.cpp", op));
  for (const std::string& entry : entries)
    CHECK_MESSAGE(ops.contains(entry), fmt::format("the entry {} is no op", entry));
}

TEST_CASE("a declaration is found wherever it would add an op") {
  CHECK(declared_in("Tensor added(const Tensor& x);\nTensors two(const Tensor& x,\n            int n);\n") ==
        std::set<std::string>{"added", "two"});
  CHECK(
      declared_in("inline Tensor operator+(const Tensor& a);\nvoid add_in_place(Tensor& x);\n// Tensor no(\n").empty());
}
