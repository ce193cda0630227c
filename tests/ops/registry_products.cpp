#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

// [..., M, K] x [..., K, N], the matrices of a batch one by one.
Array multiplied(const Array& a, const Array& b) {
  const auto batch_of = [](const Array& x) { return Shape(x.shape.data(), x.shape.size() - 2); };
  const auto with_batch = [](Shape batch, std::int64_t rows, std::int64_t cols) {
    batch.push_back(rows);
    batch.push_back(cols);
    return batch;
  };
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "oracle");
  const Array left = oracle::broadcast(a, with_batch(batch, a.size(-2), a.size(-1)));
  const Array right = oracle::broadcast(b, with_batch(batch, b.size(-2), b.size(-1)));
  Array y(with_batch(batch, a.size(-2), b.size(-1)), a.dtype);
  for (const Shape& at : oracle::indices(y.shape)) {
    const Shape matrix(at.data(), batch.size());
    const std::int64_t i = at[batch.size()], j = at[batch.size() + 1];
    std::vector<Num> terms;
    for (std::int64_t k = 0; k < a.size(-1); ++k)
      terms.push_back(left[with_batch(matrix, i, k)] * right[with_batch(matrix, k, j)]);
    y[at] = oracle::total(terms);
  }
  return y;
}

Array reshaped(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

// A vector is a row on the left and a column on the right.
Array matmul_oracle(const Arrays& x) {
  const bool row = x[0].shape.size() == 1, column = x[1].shape.size() == 1;
  Array y =
      multiplied(row ? reshaped(x[0], {1, x[0].size(0)}) : x[0], column ? reshaped(x[1], {x[1].size(0), 1}) : x[1]);
  if (column) y.shape.erase(y.shape.size() - 1);
  if (row) y.shape.erase(y.shape.size() - (column ? 1 : 2));
  return y;
}

Array linear_oracle(const Arrays& x) {
  const std::int64_t in = x[1].size(1), out = x[1].size(0);
  Shape shape = x[0].shape;
  shape[shape.size() - 1] = out;
  Array y(shape, x[0].dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / out, o = static_cast<std::int64_t>(i) % out;
    std::vector<Num> terms;
    for (std::int64_t k = 0; k < in; ++k)
      terms.push_back(x[0].values[static_cast<std::size_t>(row * in + k)] * x[1][{o, k}]);
    if (x.size() > 2) terms.push_back(x[2][{o}]);
    y.values[i] = oracle::total(terms);
  }
  return y;
}

}  // namespace

void register_products(std::vector<Entry>& entries) {
  Entry& product = make_entry(entries, "matmul");
  const auto of = [&](const Shape& a, const Shape& b) -> Case& {
    return product.add(
        a.str() + b.str(), {uniform(a, -2, 2, 1), uniform(b, -2, 2, 2)},
        [](const Tensors& x) { return matmul(x[0], x[1]); }, matmul_oracle);
  };
  of({3, 5}, {5, 4});
  of({1, 1}, {1, 1});
  of({7}, {7});
  of({5}, {5, 3});
  of({3, 5}, {5});
  of({2, 3, 4}, {2, 4, 3});
  of({2, 3, 4}, {4, 2});
  of({3, 4}, {2, 4, 2});
  of({2, 1, 3, 2}, {3, 2, 3});
  of({4}, {2, 4, 3});
  of({2, 3, 4}, {4});
  of({0, 5}, {5, 4});
  of({3, 0}, {0, 4});
  of({2, 0, 3}, {3, 2});
  of({33, 67}, {67, 35});
  of({17, 5}, {5, 129}).repeats = false;
  product.add(
      "products above the range of f16",
      {full({2, 4}, 250, f64), from_vector(std::vector<double>{250, 250, -250, -200}, {4, 1})},
      [](const Tensors& x) { return matmul(x[0], x[1]); }, matmul_oracle);
  product.error("sizes that do not fit", [] { matmul(ones({2, 3}), ones({2, 3})); });
  product.error("batches that do not broadcast", [] { matmul(ones({2, 1, 3}), ones({3, 3, 1})); });
  product.error("mixed dtypes", [] { matmul(ones({2, 2}, f16), ones({2, 2}, f32)); });
  product.error("integers", [] { matmul(ones({2, 2}, i64), ones({2, 2}, i64)); });
  product.error("a scalar", [] { matmul(ones({}), ones({2})); });

  Entry& layer = make_entry(entries, "linear");
  const auto on = [&](const Shape& x, std::int64_t out, bool bias) -> Case& {
    Tensors inputs = {uniform(x, -2, 2, 1), uniform({out, x.back()}, -2, 2, 2)};
    if (bias) inputs.push_back(uniform({out}, -2, 2, 3));
    return layer.add(
        fmt::format("{} to {}{}", x.str(), out, bias ? " with bias" : ""), inputs,
        [](const Tensors& x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); }, linear_oracle);
  };
  on({3, 5}, 4, true);
  on({3, 5}, 4, false);
  on({5}, 3, true);
  on({2, 3, 4}, 2, true);
  on({0, 5}, 4, true);
  on({3, 0}, 2, true);
  on({1, 1}, 1, true);
  on({34, 67}, 19, true);
  // Sums of whole numbers, and a half: none is so near 0 that rounding could change its sign.
  const auto with_relu = [&](const Shape& x, std::int64_t out) {
    const Tensor bias = integers({out}, -9, 9, 6).to(f64) + 0.5;
    layer.add(
        fmt::format("{} to {} with relu", x.str(), out),
        {integers(x, -2, 3, 4).to(f64), integers({out, x.back()}, -2, 3, 5).to(f64), bias},
        [](const Tensors& x) { return linear(x[0], x[1], x[2], Activation::relu); },
        [](const Arrays& x) { return oracle::relu(linear_oracle(x)); });
  };
  with_relu({3, 5}, 4);
  with_relu({2, 3, 4}, 2);
  with_relu({0, 5}, 4);
  with_relu({3, 0}, 4);
  with_relu({1, 1}, 1);
  with_relu({34, 67}, 19);
  with_relu({5}, 3);
  with_relu({40, 33}, 64);
  layer.add(
      "with relu, without bias", {full({2, 3}, 1.5), integers({4, 3}, 0, 2, 7).to(f64) * 2 - 1},
      [](const Tensors& x) { return linear(x[0], x[1], {}, Activation::relu); },
      [](const Arrays& x) { return oracle::relu(linear_oracle(x)); });
  layer.error("sizes that do not fit", [] { linear(ones({2, 3}), ones({4, 2})); });
  layer.error("a bias of another size", [] { linear(ones({2, 3}), ones({4, 3}), ones({3})); });
  layer.error("mixed dtypes", [] { linear(ones({2, 3}, f16), ones({4, 3})); });
  layer.error("a weight that is no matrix", [] { linear(ones({2, 3}), ones({3})); });
}

}  // namespace halfgrad::testing
