#include "engine/ops/join.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;

Array joined(const Arrays& parts, std::int64_t dim) {
  const auto d = static_cast<std::size_t>(dim < 0 ? dim + parts[0].shape.rank() : dim);
  Shape shape = parts[0].shape;
  DType dtype = parts[0].dtype;
  shape[d] = 0;
  for (const Array& x : parts) {
    shape[d] += x.shape[d];
    dtype = promote(dtype, x.dtype);
  }
  Array y(shape, dtype);
  std::int64_t start = 0;
  for (const Array& x : parts) {
    for (const Shape& at : oracle::indices(x.shape)) y[oracle::with(at, d, start + at[d])] = x[at];
    start += x.shape[d];
  }
  return y;
}

// x[start : start + length] along d
Array part(const Array& x, std::size_t d, std::int64_t start, std::int64_t length) {
  Array y(oracle::with(x.shape, d, length), x.dtype);
  for (const Shape& at : oracle::indices(y.shape)) y[at] = x[oracle::with(at, d, start + at[d])];
  return y;
}

Oracle parts(const std::vector<std::int64_t>& sizes, std::size_t d) {
  return [=](const Arrays& x) {
    Arrays y;
    std::int64_t start = 0;
    for (std::int64_t size : sizes) {
      y.push_back(part(x[0], d, start, size));
      start += size;
    }
    return y;
  };
}

Entry& movement(Entries& entries, const char* name) {
  return make_entry(entries, name, Derivatives::any, Accuracy::rounded_once);
}

void register_cat_and_stack(Entries& entries) {
  Entry& cat_entry = movement(entries, "cat");
  const auto cat_along = [&](const std::string& name, const Tensors& inputs, std::int64_t dim) -> Case& {
    return cat_entry.add(
        name, inputs, [dim](const Tensors& x) { return cat(x, dim); },
        [dim](const Arrays& x) { return joined(x, dim); });
  };
  cat_along("rows", {uniform({2, 3}, -2, 2, 1), uniform({1, 3}, -2, 2, 2), uniform({4, 3}, -2, 2, 3)}, 0);
  cat_along("columns", {uniform({3, 2}, -2, 2, 1), uniform({3, 5}, -2, 2, 2)}, -1);
  cat_along("one", {uniform({3, 2})}, 0);
  cat_along("with nothing", {uniform({0, 2}), uniform({3, 2})}, 0);
  cat_along("images", {uniform({2, 2, 2, 3}, -2, 2, 1), uniform({2, 3, 2, 3}, -2, 2, 2)}, 1);
  cat_along("f16 and f32", {uniform({2, 3}).to(f16), uniform({2, 3}).to(f32)}, 0).dtypes.clear();
  cat_along("integers", {integers({2, 3}, -9, 9), integers({1, 3}, 0, 9).to(u8)}, 0).dtypes.clear();
  cat_entry.error("nothing", [] { cat({}); });
  cat_entry.error("other sizes", [] { cat({ones({2, 3}), ones({2, 2})}); });
  cat_entry.error("other ranks", [] { cat({ones({2, 3}), ones({3})}); });
  cat_entry.error("a dimension that is not there", [] { cat({ones({2})}, 1); });

  Entry& stack_entry = movement(entries, "stack");
  for (std::int64_t dim : {0, 1, -1})
    stack_entry.add(
        fmt::format("along {}", dim), {uniform({2, 3}, -2, 2, 1), uniform({2, 3}, -2, 2, 2), uniform({2, 3}, -2, 2, 3)},
        [dim](const Tensors& x) { return stack(x, dim); },
        [dim](const Arrays& x) {
          Arrays layers = x;
          for (Array& layer : layers) layer.shape.insert(static_cast<std::size_t>(dim < 0 ? dim + 3 : dim), 1);
          return joined(layers, dim);
        });
  stack_entry.error("nothing", [] { stack({}); });
  stack_entry.error("other shapes", [] { stack({ones({2, 3}), ones({2, 2})}); });
  stack_entry.error("a dimension that is not there", [] { stack({ones({2})}, 2); });
}

void register_split_and_chunk(Entries& entries) {
  Entry& split_entry = movement(entries, "split");
  split_entry.add(
      "equal parts", {uniform({6, 2})}, [](const Tensors& x) { return split(x[0], 2); }, parts({2, 2, 2}, 0));
  split_entry.add(
      "a shorter rest", {uniform({2, 7})}, [](const Tensors& x) { return split(x[0], 3, -1); }, parts({3, 3, 1}, 1));
  split_entry.add(
      "given sizes", {uniform({2, 7})},
      [](const Tensors& x) {
        return split(x[0], Shape{4, 0, 3}, 1);
      },
      parts({4, 0, 3}, 1));
  split_entry
      .add(
          "integers", {integers({6}, -9, 9)}, [](const Tensors& x) { return split(x[0], 4); }, parts({4, 2}, 0))
      .dtypes.clear();
  split_entry.error("size 0", [] { split(ones({2}), 0); });
  split_entry.error("sizes that do not add up", [] { split(ones({5}), Shape{2, 2}); });
  split_entry.error("a scalar", [] { split(ones({}), 1); });

  Entry& chunk_entry = movement(entries, "chunk");
  chunk_entry.add(
      "equal parts", {uniform({6, 2})}, [](const Tensors& x) { return chunk(x[0], 3); }, parts({2, 2, 2}, 0));
  chunk_entry.add(
      "fewer than asked for", {uniform({2, 5})}, [](const Tensors& x) { return chunk(x[0], 4, 1); },
      parts({2, 2, 1}, 1));
  chunk_entry.error("count 0", [] { chunk(ones({2}), 0); });
  chunk_entry.error("a dimension that is not there", [] { chunk(ones({2}), 2, 1); });
}

void register_pad_and_flip(Entries& entries) {
  Entry& pad_entry = movement(entries, "pad");
  const auto padded = [&](const std::string& name, const Tensor& x, const Shape& pads, double value) -> Case& {
    return pad_entry.add(
        name, {x}, [=](const Tensors& x) { return pad(x[0], pads, value); },
        [=](const Arrays& x) {
          Shape shape = x[0].shape, before(shape.size(), 0);
          for (std::size_t i = 0; 2 * i < pads.size(); ++i) {
            const std::size_t d = shape.size() - 1 - i;
            shape[d] += pads[2 * i] + pads[2 * i + 1];
            before[d] = pads[2 * i];
          }
          Array y(shape, x[0].dtype);
          for (const Shape& at : oracle::indices(shape)) {
            Shape from = at;
            bool inside = true;
            for (std::size_t d = 0; d < from.size(); ++d) {
              from[d] -= before[d];
              inside = inside && from[d] >= 0 && from[d] < x[0].shape[d];
            }
            y[at] = inside ? x[0][from] : Num(value);
          }
          return y;
        });
  };
  padded("the last dimension", uniform({3, 4}), {1, 2}, 0);
  padded("two dimensions with a value", uniform({2, 3, 4}), {1, 0, 2, 1}, -1.5);
  padded("cropped", uniform({3, 5}), {-1, -2}, 7);
  padded("cropped and padded", uniform({3, 5}), {-1, 2, 1, -1}, 7);
  padded("an image", uniform({1, 2, 3, 2}), {1, 1, 1, 1}, 0);
  padded("nothing", uniform({0, 2}), {1, 1}, 3);
  padded("integers", integers({2, 3}, -9, 9), {1, 1}, 5).dtypes.clear();
  pad_entry.error("an odd number of pads", [] { pad(ones({2}), {1}); });
  pad_entry.error("pads for too many dimensions", [] { pad(ones({2}), {1, 1, 1, 1}); });
  pad_entry.error("cropped below nothing", [] { pad(ones({2}), {-2, -1}); });

  Entry& flip_entry = movement(entries, "flip");
  const auto flipped = [&](const std::string& name, const Tensor& x, const Shape& dims) -> Case& {
    return flip_entry.add(
        name, {x}, [=](const Tensors& x) { return flip(x[0], dims); },
        [=](const Arrays& x) {
          Array y(x[0].shape, x[0].dtype);
          for (const Shape& at : oracle::indices(y.shape)) {
            Shape from = at;
            for (std::int64_t dim : dims) {
              const auto d = static_cast<std::size_t>(dim < 0 ? dim + y.shape.rank() : dim);
              from[d] = y.shape[d] - 1 - at[d];
            }
            y[at] = x[0][from];
          }
          return y;
        });
  };
  flipped("rows", uniform({3, 4}), {0});
  flipped("columns", uniform({3, 4}), {-1});
  flipped("both sides of an image", uniform({2, 2, 3, 2}), {2, 3});
  flipped("nothing", uniform({0, 2}), {0});
  flipped("integers", integers({5}, -9, 9), {0}).dtypes.clear();
  flip_entry.error("a dimension that is not there", [] { flip(ones({2}), {1}); });
  flip_entry.error("a dimension twice", [] { flip(ones({2}), {0, 0}); });
}

}  // namespace

void register_joins(Entries& entries) {
  register_cat_and_stack(entries);
  register_split_and_chunk(entries);
  register_pad_and_flip(entries);
}

}  // namespace halfgrad::testing
