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
#include "tests/ops/registry_run.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

constexpr std::int64_t kLargestGradcheck = 300;  // elements of all inputs together
constexpr std::int64_t kLargestGradgradcheck = 80;

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
          CHECK_NOTHROW(check_run({entry, c, dtype, layout}, c.gradients));
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
      const Tensors x = inputs_of({entry, c, f64, Layout::plain}, true);
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
// line. What lies in a namespace `detail` is no op, but a part of ops.
std::set<std::string> declared_in(const std::string& text, const std::string& indentation = "") {
  std::set<std::string> names;
  std::istringstream lines(text);
  bool in_detail = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("namespace")) in_detail = line.find("detail {") != std::string::npos;
    if (line.starts_with("}  // namespace")) in_detail = false;
    if (in_detail) continue;
    for (const std::string type : {"Tensor ", "Tensors "}) {
      if (!line.starts_with(indentation + type)) continue;
      const std::string rest = line.substr(indentation.size() + type.size());
      const auto end =
          std::find_if(rest.begin(), rest.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_'; });
      const std::string name(rest.begin(), end);
      if (!name.empty() && end != rest.end() && *end == '(' && !name.starts_with("operator")) names.insert(name);
    }
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
  CHECK(declared_in("Tensor a(int);\nnamespace detail {\nTensor b(int);\n}  // namespace detail\nTensor c(int);\n") ==
        std::set<std::string>{"a", "c"});
}
