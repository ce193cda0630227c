// where, which selects elements, and cast, which converts them.

#include <algorithm>
#include <cmath>

#include "engine/ops/elementwise.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;

void register_where(Entries& entries) {
  Entry& entry = make_entry(entries, "where", Derivatives::any, Accuracy::rounded_once);
  const Op1 op = [](const Tensors& x) { return where(x[0], x[1], x[2]); };
  const Oracle1 expected = [](const Arrays& x) {
    const Shape shape = broadcast_shapes(x[0].shape, broadcast_shapes(x[1].shape, x[2].shape, "where"), "where");
    const Array c = oracle::broadcast(x[0], shape), a = oracle::broadcast(x[1], shape),
                b = oracle::broadcast(x[2], shape);
    Array y(shape, promote(x[1].dtype, x[2].dtype));
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = c.values[i].value != 0 ? a.values[i] : b.values[i];
    return y;
  };
  const Tensor coins = whole_numbers({3, 5}, 0, 1, boolean, 3);
  entry.add("one shape", {coins, uniform({3, 5}, -2, 2, 1), uniform({3, 5}, -2, 2, 2)}, op, expected);
  entry.add("broadcast", {coins, uniform({5}, -2, 2, 1), uniform({2, 3, 1}, -2, 2, 2)}, op, expected);
  entry.add("a condition that broadcasts", {whole_numbers({3, 1}, 0, 1, boolean, 3), uniform({3, 5}), uniform({})}, op,
            expected);
  entry.add("empty", {whole_numbers({0, 5}, 0, 1, boolean), uniform({0, 5}), uniform({5})}, op, expected);
  entry.add("integers", {coins, integers({3, 5}, -9, 9, 1), integers({5}, -9, 9, 2)}, op, expected).dtypes.clear();
  entry.add("f16 or f32", {coins, uniform({3, 5}).to(f16), uniform({3, 5}).to(f32)}, op, expected).dtypes.clear();
  entry.error("a condition that is not bool", [] { where(ones({2}), ones({2}), ones({2})); });
  entry.error("shapes that do not broadcast", [] { where(ones({2}, boolean), ones({3}), ones({2})); });
}

// To an integer: towards zero, within the range; NaN gives 0. To bool: is it not 0?
Num converted(const Num& x, DType to) {
  const auto limited = [&](double low, double high) {
    return Num(std::isnan(x.value) ? 0 : std::trunc(std::min(std::max(x.value, low), high)));
  };
  switch (to) {
    case i32:
      return limited(-0x1p31, 0x1p31 - 1);
    case i64:
      return limited(-0x1p63, 0x1p63);
    case u8:
      return limited(0, 255);
    case boolean:
      return Num(x.value != 0);
    default:
      return x;
  }
}

// cast() and Tensor::to() are the same op under two names.
void register_cast(Entries& entries, const char* name, const std::function<Tensor(const Tensor&, DType)>& convert) {
  Entry& entry = make_entry(entries, name, Derivatives::any, Accuracy::rounded_once);
  for (DType to : {f16, f32, f64, i32, i64, u8, boolean}) {
    const Op1 op = [=](const Tensors& x) { return convert(x[0], to); };
    const Oracle1 expected = [to](const Arrays& x) {
      return oracle::map(x[0], to, [to](const Num& v) { return converted(v, to); });
    };
    const std::string what = fmt::format("to {}", halfgrad::name_of(to));
    Case& c = entry.add(what, {uniform({3, 5}, 0, 9)}, op, expected);
    c.gradients = is_floating(to);
    c.smooth = to == f64;
    Case& special = entry.add(what + ", special values", {special_values()}, op, expected);
    special.gradients = special.smooth = false;
    for (DType from : {i32, i64, u8, boolean})
      entry
          .add(fmt::format("{} {}", halfgrad::name_of(from), what), {whole_numbers({3, 5}, 0, 100, from)}, op, expected)
          .dtypes.clear();
  }
}

}  // namespace

void register_selection(Entries& entries) {
  register_where(entries);
  register_cast(entries, "cast", cast);
  register_cast(entries, "to", [](const Tensor& x, DType t) { return x.to(t); });
}

}  // namespace halfgrad::testing
