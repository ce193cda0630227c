#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/norm.h"
#include "engine/ops/softmax.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Entries = std::vector<Entry>;
using Line = std::vector<Num>;

void register_softmax(Entries& entries, const char* name, Tensor (*function)(const Tensor&, std::int64_t),
                      Line (*formula)(const Line&)) {
  Entry& entry = make_entry(entries, name);
  const auto on = [&](const std::string& what, const Tensor& x, std::int64_t dim) -> Case& {
    return entry.add(
        what, {x}, [=](const Tensors& x) { return function(x[0], dim); },
        [=](const Arrays& x) { return oracle::along(x[0], dim, formula); });
  };
  on("a vector", uniform({7}, -4, 4), 0);
  on("rows", uniform({3, 5}, -4, 4), -1);
  on("columns", uniform({3, 5}, -4, 4), 0);
  on("a middle dimension", uniform({2, 3, 4}, -4, 4), 1);
  on("channels of an image", uniform({2, 3, 2, 3}, -4, 4), 1);
  on("one element", uniform({3, 1}), 1);
  on("nothing", uniform({0, 3}), 1);
  on("longer than a block", uniform({2, 131}, -4, 4), 1);
  on("above any range of powers", full({2, 3}, 30000, f64), 1);
  std::vector<double> lines;
  for (double special : special_values().to_vector<double>()) lines.insert(lines.end(), {1, special, -0.5});
  Case& special = on("special values", from_vector(lines, {static_cast<std::int64_t>(lines.size() / 3), 3}), 1);
  special.gradients = special.smooth = false;
  Case& none = on("minus infinity throughout", full({2, 3}, -INFINITY, f64), 1);
  none.gradients = none.smooth = false;
  entry.error("integers", [function] { function(arange(3), 0); });
  entry.error("a dimension that is not there", [function] { function(ones({3}), 1); });
}

// The mean and the biased variance of a line.
struct Statistics {
  Num mean, variance;
  explicit Statistics(const Line& x) : mean(oracle::total(x) / Num(static_cast<double>(x.size()))) {
    Line squares;
    for (const Num& v : x) squares.push_back((v - mean) * (v - mean));
    variance = oracle::total(squares) / Num(static_cast<double>(x.size()));
  }
};

Num standardized(const Num& x, const Num& mean, const Num& variance, double eps) {
  return (x - mean) * (1.0 / oracle::sqrt(variance + oracle::rounded_constant(eps)));
}

// Exact in f16, so that they are the same numbers in every dtype.
Tensor running_statistic(std::int64_t channels, double low, std::uint64_t seed) {
  return integers({channels}, 0, 64, seed).to(f64) / 64 + low;
}

struct BatchNorm {
  bool training;
  double momentum = 0.1, eps = 1e-5;
  Activation activation = Activation::none;
  Tensor mean = {}, variance = {};  // the running statistics; f64

  // y, and the running statistics afterwards. They have f32 for an f16 x, as in mixed precision.
  Tensors run(const Tensors& x) const {
    const DType dtype = compute_dtype(x[0].dtype());
    const Device device = x[0].device();
    const Tensor m = mean.to(dtype).to(device).clone(), v = variance.to(dtype).to(device).clone();
    const Tensor y = batch_norm(x[0], x[1], x[2], m, v, training, momentum, eps, activation);
    return {y, m, v};
  }

  Arrays expected(const Arrays& x) const {
    const DType dtype = compute_dtype(x[0].dtype);
    Array y(x[0].shape, x[0].dtype), m(mean.shape(), dtype), v(variance.shape(), dtype);
    const std::vector<double> old_mean = mean.to_vector<double>(), old_variance = variance.to_vector<double>();
    for (std::int64_t c = 0; c < mean.numel(); ++c) {
      m[{c}] = old_mean[static_cast<std::size_t>(c)];
      v[{c}] = old_variance[static_cast<std::size_t>(c)];
      Line line;
      std::vector<Shape> at;
      for (const Shape& index : oracle::indices(x[0].shape)) {
        if (index[1] != c) continue;
        line.push_back(x[0][index]);
        at.push_back(index);
      }
      if (line.empty()) continue;
      const Statistics batch(line);
      for (const Shape& index : at)
        y[index] = standardized(x[0][index], training ? batch.mean : m[{c}], training ? batch.variance : v[{c}], eps) *
                       x[1][{c}] +
                   x[2][{c}];
      if (!training) continue;
      const auto n = static_cast<double>(line.size());
      const Num share = oracle::rounded_constant(momentum);
      m[{c}] = m[{c}] + share * (batch.mean - m[{c}]);
      v[{c}] = v[{c}] + share * (batch.variance * oracle::rounded_constant(n / (n - 1)) - v[{c}]);
    }
    return {activation == Activation::relu ? oracle::relu(y) : y, m, v};
  }
};

void register_batch_norm(Entries& entries) {
  Entry& entry = make_entry(entries, "batch_norm");
  const auto on = [&](const std::string& what, const Shape& shape, BatchNorm norm) {
    const std::int64_t c = shape[1];
    norm.mean = running_statistic(c, -0.5, 4);
    norm.variance = running_statistic(c, 0.5, 5);
    Tensors inputs = {uniform(shape, -2, 2, 1), uniform({c}, 0.5, 2, 2), uniform({c}, -2, 2, 3)};
    if (norm.activation != Activation::none) {
      // About 2 and -2 in turn, so that no result is so near 0 that rounding could change its sign.
      const Tensor turn = arange(shape.numel()).reshape(shape).to(f64);
      inputs[0] = inputs[0] / 8 + 2 - 4 * (turn - 2 * floor(turn / 2));
      inputs[2] = inputs[2] / 16;
    }
    const auto y_of = [norm](const Tensors& x) { return norm.run(x)[0]; };
    const auto expected_y = [norm](const Arrays& x) { return norm.expected(x)[0]; };
    entry.add(what, inputs, y_of, expected_y).repeats = false;
    entry
        .add(what + ", f16 with f32 parameters", {inputs[0].to(f16), inputs[1].to(f32), inputs[2].to(f32)}, y_of,
             expected_y)
        .dtypes.clear();
    entry.cases.back().repeats = false;
    Case& running = entry.add(
        what + ", running statistics", inputs, [norm](const Tensors& x) { return norm.run(x); },
        [norm](const Arrays& x) { return norm.expected(x); });
    running.gradients = running.smooth = running.repeats = false;
  };
  for (bool training : {true, false}) {
    const std::string mode = training ? "training" : "evaluation";
    on("images, " + mode, {3, 2, 2, 3}, {training});
    on("vectors, " + mode, {5, 3}, {training});
    on("sequences, " + mode, {2, 3, 4}, {training, 0.3, 1e-3});
    on("more channels than a vector, " + mode, {2, 35, 3, 3}, {training});
    on("no images, " + mode, {0, 3, 2, 2}, {training});
    for (const Shape& shape : {Shape{3, 2, 2, 3}, Shape{6, 3}, Shape{2, 35, 4, 3}, Shape{0, 3, 2, 2}})
      on(fmt::format("{} with relu, {}", shape, mode), shape, {.training = training, .activation = Activation::relu});
  }
  entry
      .add(
          "without parameters and running statistics", {uniform({4, 3})},
          [](const Tensors& x) { return batch_norm(x[0], {}, {}, {}, {}, true); },
          [](const Arrays& x) {
            return oracle::along(x[0], 0, [](const Line& line) {
              const Statistics batch(line);
              Line y;
              for (const Num& v : line) y.push_back(standardized(v, batch.mean, batch.variance, 1e-5));
              return y;
            });
          })
      .repeats = false;
  const auto bad = [](const Tensor& x, const Tensor& p) { batch_norm(x, p, p, p, p, true); };
  entry.error("parameters of another size", [=] { bad(ones({4, 3}), ones({2})); });
  entry.error("one value per channel", [=] { bad(ones({1, 3}), ones({3})); });
  entry.error("a vector", [=] { bad(ones({3}), ones({3})); });
  entry.error("integers", [=] { bad(ones({4, 3}, i64), ones({3})); });
  entry.error("half of the running statistics", [] { batch_norm(ones({4, 3}), {}, {}, zeros({3}), {}, true); });
}

void register_layer_norm(Entries& entries) {
  Entry& entry = make_entry(entries, "layer_norm");
  const auto on = [&](const std::string& what, const Shape& shape, const Shape& normalized, double eps = 1e-5) {
    const auto expected = [=](const Arrays& x) {
      Array y(shape, x[0].dtype);
      const auto n = static_cast<std::size_t>(normalized.numel());
      for (std::size_t start = 0; start < y.values.size(); start += n) {
        const Line line(x[0].values.begin() + static_cast<std::ptrdiff_t>(start),
                        x[0].values.begin() + static_cast<std::ptrdiff_t>(start + n));
        const Statistics row(line);
        for (std::size_t i = 0; i < n; ++i) {
          const Num z = standardized(line[i], row.mean, row.variance, eps);
          y.values[start + i] = x.size() > 1 ? z * x[1].values[i] + x[2].values[i] : z;
        }
      }
      return y;
    };
    const auto op = [=](const Tensors& x) {
      return x.size() > 1 ? layer_norm(x[0], normalized, x[1], x[2], eps) : layer_norm(x[0], normalized, {}, {}, eps);
    };
    const Tensors inputs = {uniform(shape, -2, 2, 1), uniform(normalized, 0.5, 2, 2), uniform(normalized, -2, 2, 3)};
    entry.add(what, inputs, op, expected);
    entry
        .add(what + ", f16 with f32 parameters", {inputs[0].to(f16), inputs[1].to(f32), inputs[2].to(f32)}, op,
             expected)
        .dtypes.clear();
    entry.add(what + ", without parameters", {inputs[0]}, op, expected);
  };
  on("rows", {3, 5}, {5});
  on("a vector", {7}, {7});
  on("two dimensions", {2, 3, 4}, {3, 4}, 1e-3);
  on("an image", {2, 2, 2, 3}, {2, 2, 3});
  on("longer than a vector", {2, 67}, {67});
  on("no rows", {0, 4}, {4});
  entry.error("another shape", [] { layer_norm(ones({2, 3}), {2}); });
  entry.error("no dimensions", [] { layer_norm(ones({2, 3}), {}); });
  entry.error("a weight of another shape", [] { layer_norm(ones({2, 3}), {3}, ones({2})); });
  entry.error("integers", [] { layer_norm(ones({2, 3}, i64), {3}); });
}

}  // namespace

void register_norms(Entries& entries) {
  register_softmax(entries, "softmax", softmax, oracle::softmax);
  register_softmax(entries, "log_softmax", log_softmax, oracle::log_softmax);
  register_batch_norm(entries);
  register_layer_norm(entries);
}

}  // namespace halfgrad::testing
