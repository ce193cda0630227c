#include "engine/ops/index.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;

std::size_t axis(std::int64_t dim, const Array& x) {
  return static_cast<std::size_t>(dim < 0 ? dim + x.shape.rank() : dim);
}

// A copy of x to which the named numbers were added.
class Additions {
 public:
  explicit Additions(const Array& x) : x_(x), terms_(x.values.size()), at_(x.shape, f64) {
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      terms_[i] = {x.values[i]};
      at_.values[i] = static_cast<double>(i);
    }
  }
  void add(const Shape& index, const Num& term) {
    terms_[static_cast<std::size_t>(at_.integer(index))].push_back(term);
  }
  Array result() {
    for (std::size_t i = 0; i < terms_.size(); ++i) x_.values[i] = oracle::total(terms_[i]);
    return x_;
  }

 private:
  Array x_;
  std::vector<std::vector<Num>> terms_;
  Array at_;  // the position of each index
};

Array gathered(const Array& x, std::int64_t dim, const Array& index) {
  Array y(index.shape, x.dtype);
  for (const Shape& at : oracle::indices(y.shape)) y[at] = x[oracle::with(at, axis(dim, x), index.integer(at))];
  return y;
}

Array scattered(const Array& x, std::int64_t dim, const Array& index, const Array& src) {
  Additions y(x);
  for (const Shape& at : oracle::indices(index.shape))
    y.add(oracle::with(at, axis(dim, x), index.integer(at)), src[at]);
  return y.result();
}

Array selected(const Array& x, std::int64_t dim, const Array& index) {
  const std::size_t d = axis(dim, x);
  Array y(oracle::with(x.shape, d, index.size(0)), x.dtype);
  for (const Shape& at : oracle::indices(y.shape)) y[at] = x[oracle::with(at, d, index.integer({at[d]}))];
  return y;
}

Array added(const Array& x, std::int64_t dim, const Array& index, const Array& src) {
  const std::size_t d = axis(dim, x);
  Additions y(x);
  for (const Shape& at : oracle::indices(src.shape)) y.add(oracle::with(at, d, index.integer({at[d]})), src[at]);
  return y.result();
}

// The shapes of x and of an index into it along dim.
struct Sample {
  Shape x, index;
  std::int64_t dim;
};

void register_gather_and_scatter(Entries& entries) {
  const std::vector<Sample> samples = {{{5}, {7}, 0},
                                       {{3, 5}, {2, 5}, 0},
                                       {{3, 5}, {3, 8}, 1},
                                       {{2, 3, 4}, {2, 6, 3}, -2},
                                       {{2, 3, 2, 3}, {2, 3, 2, 4}, 3},
                                       {{3, 5}, {0, 5}, 0},
                                       {{1, 1}, {1, 4}, 1}};
  Entry& gather_entry = make_entry(entries, "gather", Derivatives::any, Accuracy::rounded_once);
  for (const auto& [shape, index_shape, dim] : samples) {
    const Tensor index =
        integers(index_shape, 0, shape[static_cast<std::size_t>(dim < 0 ? dim + shape.rank() : dim)], 2);
    const Op1 op = [dim = dim](const Tensors& x) { return gather(x[0], dim, x[1]); };
    const Oracle1 expected = [dim = dim](const Arrays& x) { return gathered(x[0], dim, x[1]); };
    gather_entry.add(fmt::format("{}{} along {}", shape.str(), index_shape.str(), dim), {uniform(shape), index}, op,
                     expected);
    gather_entry.add(fmt::format("{} by i32", shape.str()), {uniform(shape), index.to(i32)}, op, expected);
    gather_entry.add(fmt::format("{} of integers", shape.str()), {integers(shape, -9, 9), index}, op, expected)
        .dtypes.clear();
  }
  gather_entry.error("an index out of range", [] { gather(ones({3}), 0, full({2}, 3, i64)); });
  gather_entry.error("a negative index", [] { gather(ones({3}), 0, full({2}, -1, i64)); });
  gather_entry.error("an index of floats", [] { gather(ones({3}), 0, ones({2})); });
  gather_entry.error("an index of another rank", [] { gather(ones({3}), 0, zeros({2, 2}, i64)); });
  gather_entry.error("an index that is larger elsewhere", [] { gather(ones({3, 2}), 0, zeros({3, 3}, i64)); });
  gather_entry.error("a dimension that is not there", [] { gather(ones({3}), 1, zeros({3}, i64)); });

  Entry& scatter = make_entry(entries, "scatter_add");
  for (const auto& [shape, index_shape, dim] : samples) {
    const Tensor index =
        integers(index_shape, 0, shape[static_cast<std::size_t>(dim < 0 ? dim + shape.rank() : dim)], 2);
    scatter.add(
        fmt::format("{}{} along {}", shape.str(), index_shape.str(), dim),
        {uniform(shape), index, uniform(index_shape, -2, 2, 3)},
        [dim = dim](const Tensors& x) { return scatter_add(x[0], dim, x[1], x[2]); },
        [dim = dim](const Arrays& x) { return scattered(x[0], dim, x[1], x[2]); });
  }
  scatter
      .add(
          "integers", {integers({3}, -9, 9), integers({8}, 0, 3), integers({8}, -9, 9)},
          [](const Tensors& x) { return scatter_add(x[0], 0, x[1], x[2]); },
          [](const Arrays& x) { return scattered(x[0], 0, x[1], x[2]); })
      .dtypes.clear();
  scatter.error("an index out of range", [] { scatter_add(ones({3}), 0, full({2}, 3, i64), ones({2})); });
  scatter.error("another shape of src", [] { scatter_add(ones({3}), 0, zeros({2}, i64), ones({3})); });
  scatter.error("another dtype of src", [] { scatter_add(ones({3}), 0, zeros({2}, i64), ones({2}, f16)); });
}

void register_select_and_add(Entries& entries) {
  const std::vector<Sample> samples = {{{5}, {7}, 0},       {{3, 5}, {4}, 0},       {{3, 5}, {6}, -1},
                                       {{2, 3, 4}, {2}, 1}, {{2, 3, 2, 3}, {5}, 1}, {{3, 5}, {0}, 0}};
  Entry& select = make_entry(entries, "index_select", Derivatives::any, Accuracy::rounded_once);
  Entry addition{.name = "index_add", .cases = {}, .errors = {}};
  for (const auto& [shape, index_shape, dim] : samples) {
    const auto d = static_cast<std::size_t>(dim < 0 ? dim + shape.rank() : dim);
    const Tensor index = integers(index_shape, 0, shape[d], 2);
    const std::string name = fmt::format("{} at {} along {}", shape.str(), index_shape[0], dim);
    select.add(
        name, {uniform(shape), index}, [dim = dim](const Tensors& x) { return index_select(x[0], dim, x[1]); },
        [dim = dim](const Arrays& x) { return selected(x[0], dim, x[1]); });
    select
        .add(
            name + ", integers", {integers(shape, -9, 9), index.to(i32)},
            [dim = dim](const Tensors& x) { return index_select(x[0], dim, x[1]); },
            [dim = dim](const Arrays& x) { return selected(x[0], dim, x[1]); })
        .dtypes.clear();
    addition.add(
        name, {uniform(shape), index, uniform(oracle::with(shape, d, index_shape[0]), -2, 2, 3)},
        [dim = dim](const Tensors& x) { return index_add(x[0], dim, x[1], x[2]); },
        [dim = dim](const Arrays& x) { return added(x[0], dim, x[1], x[2]); });
  }
  select.error("an index out of range", [] { index_select(ones({3}), 0, full({2}, 3, i64)); });
  select.error("an index that is no vector", [] { index_select(ones({3}), 0, zeros({2, 2}, i64)); });
  select.error("an index of floats", [] { index_select(ones({3}), 0, ones({2})); });
  addition.error("an index out of range", [] { index_add(ones({3}), 0, full({2}, -1, i64), ones({2})); });
  addition.error("another shape of src", [] { index_add(ones({3, 2}), 0, zeros({2}, i64), ones({2, 3})); });
  addition.error("another dtype of src", [] { index_add(ones({3}), 0, zeros({2}, i64), ones({2}, f16)); });
  entries.push_back(std::move(addition));
}

void register_vocabulary(Entries& entries) {
  const auto rows = [](std::int64_t padding) {
    return [padding](const Arrays& x) {
      Shape shape = x[0].shape;
      shape.push_back(x[1].size(1));
      Array y(shape, x[1].dtype);
      for (std::size_t i = 0; i < x[0].values.size(); ++i)
        for (std::int64_t j = 0; j < x[1].size(1); ++j) {
          const auto row = static_cast<std::int64_t>(x[0].values[i].value);
          const Num& v = x[1][{row, j}];
          y.values[i * static_cast<std::size_t>(x[1].size(1)) + static_cast<std::size_t>(j)] =
              row == padding ? Num(v.value) : v;
        }
      return y;
    };
  };
  Entry& embedding_entry = make_entry(entries, "embedding", Derivatives::any, Accuracy::rounded_once);
  embedding_entry.add(
      "a sentence", {integers({7}, 0, 4, 2), uniform({4, 3})}, [](const Tensors& x) { return embedding(x[0], x[1]); },
      rows(-1));
  embedding_entry.add(
      "a batch by i32", {integers({2, 3}, 0, 4, 2).to(i32), uniform({4, 5})},
      [](const Tensors& x) { return embedding(x[0], x[1]); }, rows(-1));
  embedding_entry.add(
      "no words", {integers({0}, 0, 4), uniform({4, 3})}, [](const Tensors& x) { return embedding(x[0], x[1]); },
      rows(-1));
  embedding_entry
      .add(
          "padding", {integers({9}, 0, 3, 2), uniform({3, 2})},
          [](const Tensors& x) { return embedding(x[0], x[1], 1); }, rows(1))
      .smooth = false;  // its row has no gradient, although the result changes with it
  embedding_entry.error("a word out of range", [] { embedding(full({1}, 4, i64), ones({4, 2})); });
  embedding_entry.error("indices of floats", [] { embedding(ones({1}), ones({4, 2})); });
  embedding_entry.error("a weight that is no matrix", [] { embedding(zeros({1}, i64), ones({4})); });

  const auto hot = [](std::int64_t classes) {
    return [classes](const Arrays& x) {
      Shape shape = x[0].shape;
      shape.push_back(classes);
      Array y(shape, i64);
      for (std::size_t i = 0; i < y.values.size(); ++i)
        y.values[i] = static_cast<double>(i % static_cast<std::size_t>(classes)) ==
                      x[0].values[i / static_cast<std::size_t>(classes)].value;
      return y;
    };
  };
  Entry& one_hot_entry = make_entry(entries, "one_hot", Derivatives::none, Accuracy::rounded_once);
  one_hot_entry
      .add(
          "classes given", {integers({2, 5}, 0, 4)}, [](const Tensors& x) { return one_hot(x[0], 6); }, hot(6))
      .dtypes.clear();
  Case& inferred = one_hot_entry.add(
      "classes inferred", {from_vector(std::vector<std::int64_t>{3, 0, 2})},
      [](const Tensors& x) { return one_hot(x[0]); }, hot(4));
  inferred.dtypes.clear();
  one_hot_entry
      .add(
          "by i32", {integers({}, 0, 4).to(i32)}, [](const Tensors& x) { return one_hot(x[0], 4); }, hot(4))
      .dtypes.clear();
  one_hot_entry.error("a class out of range", [] { one_hot(full({1}, 4, i64), 4); });
  one_hot_entry.error("a negative class", [] { one_hot(full({1}, -1, i64)); });
  one_hot_entry.error("floats", [] { one_hot(ones({1}), 4); });
}

}  // namespace

void register_indexing(Entries& entries) {
  register_gather_and_scatter(entries);
  register_select_and_add(entries);
  register_vocabulary(entries);
}

}  // namespace halfgrad::testing
