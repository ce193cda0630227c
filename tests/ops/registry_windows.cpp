#include <algorithm>
#include <cmath>

#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/pool.h"
#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

using Term = std::function<void(const Shape& x, const Shape& w, const Shape& y)>;

std::int64_t positions(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                       std::int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// Names every product of a convolution: y[y] += x[x] * w[w].
void for_each_product(const Shape& x, const Shape& w, const Shape& y, const Conv2dOptions& o, const Term& term) {
  const std::int64_t per_group = y[1] / o.groups;
  for (const Shape& at : oracle::indices(y))
    for (std::int64_t c = 0; c < w[1]; ++c)
      for (std::int64_t r = 0; r < w[2]; ++r)
        for (std::int64_t s = 0; s < w[3]; ++s) {
          const std::int64_t i = at[2] * o.stride.h - o.padding.h + r * o.dilation.h;
          const std::int64_t j = at[3] * o.stride.w - o.padding.w + s * o.dilation.w;
          if (i < 0 || j < 0 || i >= x[2] || j >= x[3]) continue;
          term({at[0], at[1] / per_group * w[1] + c, i, j}, {at[1], c, r, s}, at);
        }
}

Shape convolved_shape(const Shape& x, const Shape& w, const Conv2dOptions& o) {
  return {x[0], w[0], positions(x[2], w[2], o.stride.h, o.padding.h, o.dilation.h),
          positions(x[3], w[3], o.stride.w, o.padding.w, o.dilation.w)};
}

// Sums of products, collected per element of the result.
class Sums {
 public:
  Sums(const Shape& shape, DType dtype) : result_(shape, dtype), terms_(result_.values.size()), at_(shape, f64) {
    for (std::size_t i = 0; i < at_.values.size(); ++i) at_.values[i] = static_cast<double>(i);
  }
  void add(const Shape& index, const Num& term) {
    terms_[static_cast<std::size_t>(at_.integer(index))].push_back(term);
  }
  Array totals() {
    std::transform(terms_.begin(), terms_.end(), result_.values.begin(), oracle::total);
    return result_;
  }

 private:
  Array result_;
  std::vector<std::vector<Num>> terms_;
  Array at_;  // the position of each index
};

Array convolved(const Arrays& x, const Conv2dOptions& o) {
  const Shape shape = convolved_shape(x[0].shape, x[1].shape, o);
  Sums y(shape, x[0].dtype);
  for_each_product(x[0].shape, x[1].shape, shape, o,
                   [&](const Shape& i, const Shape& w, const Shape& at) { y.add(at, x[0][i] * x[1][w]); });
  if (x.size() > 2)
    for (const Shape& at : oracle::indices(shape)) y.add(at, x[2][{at[1]}]);
  return y.totals();
}

struct ConvCase {
  const char* name;
  Shape x, weight;
  Conv2dOptions options;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases = {
      {"3x3", {2, 2, 4, 5}, {3, 2, 3, 3}, {}},
      {"3x3 padded", {1, 2, 4, 3}, {2, 2, 3, 3}, {.padding = 1}},
      {"strided", {2, 1, 7, 6}, {2, 1, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}}},
      {"dilated", {1, 2, 7, 6}, {2, 2, 3, 2}, {.dilation = {2, 3}}},
      {"groups", {2, 4, 3, 3}, {6, 2, 2, 2}, {.groups = 2}},
      {"one channel per group", {1, 3, 4, 4}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}},
      {"1x1", {2, 3, 2, 3}, {4, 3, 1, 1}, {}},
      {"1x1 strided", {1, 3, 5, 4}, {2, 3, 1, 1}, {.stride = 2}},
      {"a kernel larger than the image", {1, 1, 2, 2}, {1, 1, 5, 5}, {.padding = 2}},
      {"no images", {0, 2, 4, 4}, {3, 2, 3, 3}, {}},
      {"more than a tile", {2, 5, 9, 11}, {19, 5, 3, 3}, {.padding = 1}},
      {"everything at once",
       {2, 4, 9, 8},
       {6, 2, 3, 2},
       {.stride = {2, 1}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2}}};
  return cases;
}

struct TransposedCase {
  const char* name;
  Shape x, weight;
  ConvTranspose2dOptions options;
};

const std::vector<TransposedCase>& transposed_cases() {
  static const std::vector<TransposedCase> cases = {
      {"3x3", {2, 2, 3, 4}, {2, 3, 3, 3}, {}},
      {"3x3 padded", {1, 2, 4, 3}, {2, 2, 3, 3}, {.padding = 1}},
      {"doubling the size", {2, 2, 3, 2}, {2, 3, 4, 4}, {.stride = 2, .padding = 1}},
      {"output padding", {2, 1, 3, 2}, {1, 2, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}}},
      {"output padding of more than a stride",
       {1, 2, 3, 2},
       {2, 1, 2, 2},
       {.stride = {1, 2}, .output_padding = {2, 3}, .dilation = {3, 4}}},
      {"pixels that nothing reaches", {1, 2, 2, 3}, {2, 2, 1, 1}, {.stride = {3, 2}}},
      {"dilated", {1, 2, 4, 3}, {2, 2, 3, 2}, {.dilation = {2, 3}}},
      {"groups", {2, 4, 3, 3}, {4, 3, 2, 2}, {.groups = 2}},
      {"one channel per group", {1, 3, 4, 4}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}},
      {"1x1", {2, 3, 2, 3}, {3, 4, 1, 1}, {}},
      {"one number", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {"one pixel", {2, 3, 1, 1}, {3, 2, 4, 3}, {}},
      {"more cut off than the kernel adds", {1, 1, 4, 5}, {1, 2, 2, 2}, {.padding = 2}},
      {"no images", {0, 2, 4, 4}, {2, 3, 3, 3}, {}},
      {"more than a tile", {2, 19, 5, 6}, {19, 17, 3, 3}, {.padding = 1}},
      {"everything at once",
       {2, 4, 3, 4},
       {4, 3, 3, 2},
       {.stride = {3, 2}, .padding = {2, 1}, .output_padding = {2, 1}, .dilation = {1, 2}, .groups = 2}}};
  return cases;
}

// The products are those of the convolution in the other direction.
Array transposed(const Arrays& x, const ConvTranspose2dOptions& o) {
  const auto size = [&](int d) {
    return (x[0].size(2 + d) - 1) * o.stride[d] - 2 * o.padding[d] + o.dilation[d] * (x[1].size(2 + d) - 1) + 1 +
           o.output_padding[d];
  };
  const Shape shape{x[0].size(0), x[1].size(1) * o.groups, size(0), size(1)};
  const Conv2dOptions other{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  Sums y(shape, x[0].dtype);
  for_each_product(shape, x[1].shape, x[0].shape, other,
                   [&](const Shape& i, const Shape& w, const Shape& at) { y.add(i, x[0][at] * x[1][w]); });
  if (x.size() > 2)
    for (const Shape& at : oracle::indices(shape)) y.add(at, x[2][{at[1]}]);
  return y.totals();
}

// The oracle of a batch as that of one image without a batch.
Oracle1 without_batch(const Oracle1& of_batch) {
  return [of_batch](const Arrays& x) {
    Arrays batch = x;
    batch[0].shape.insert(0, 1);
    Array y = of_batch(batch);
    y.shape.erase(0);
    return y;
  };
}

void register_convolutions(std::vector<Entry>& entries) {
  Entry& conv = make_entry(entries, "conv2d");
  for (const ConvCase& c : conv_cases()) {
    const Tensor x = uniform(c.x, -2, 2, 1), w = uniform(c.weight, -2, 2, 2), bias = uniform({c.weight[0]}, -2, 2, 3);
    conv.add(
        c.name, {x, w, bias}, [c](const Tensors& x) { return conv2d(x[0], x[1], x[2], c.options); },
        [c](const Arrays& x) { return convolved(x, c.options); });
  }
  for (const ConvCase& c : conv_cases()) {
    // Sums of whole numbers, and a half: none is so near 0 that rounding could change its sign.
    const Tensor x = integers(c.x, -2, 3, 4).to(f64), w = integers(c.weight, -2, 3, 5).to(f64);
    const Tensor bias = integers({c.weight[0]}, -9, 9, 6).to(f64) + 0.5;
    conv.add(
        std::string(c.name) + ", with relu", {x, w, bias},
        [c](const Tensors& x) { return conv2d(x[0], x[1], x[2], c.options, Activation::relu); },
        [c](const Arrays& x) { return oracle::relu(convolved(x, c.options)); });
  }
  conv.add(
      "with relu, without bias", {full({2, 3, 4, 4}, 0.5), integers({4, 3, 1, 1}, 0, 2, 7).to(f64) * 2 - 1},
      [](const Tensors& x) { return conv2d(x[0], x[1], {}, {}, Activation::relu); },
      [](const Arrays& x) { return oracle::relu(convolved(x, {})); });
  conv.add(
      "without bias", {uniform({1, 2, 3, 3}, -2, 2, 1), uniform({2, 2, 2, 2}, -2, 2, 2)},
      [](const Tensors& x) { return conv2d(x[0], x[1]); }, [](const Arrays& x) { return convolved(x, {}); });
  conv.add(
      "one image without a batch", {uniform({2, 4, 3}, -2, 2, 1), uniform({3, 2, 2, 2}, -2, 2, 2)},
      [](const Tensors& x) { return conv2d(x[0], x[1]); },
      without_batch([](const Arrays& x) { return convolved(x, {}); }));
  conv.error("other channels", [] { conv2d(ones({1, 3, 4, 4}), ones({2, 2, 3, 3})); });
  conv.error("groups that do not divide", [] { conv2d(ones({1, 3, 4, 4}), ones({2, 1, 3, 3}), {}, {.groups = 2}); });
  conv.error("a kernel that fits nowhere", [] { conv2d(ones({1, 1, 2, 2}), ones({1, 1, 3, 3})); });
  conv.error("stride 0", [] { conv2d(ones({1, 1, 2, 2}), ones({1, 1, 1, 1}), {}, {.stride = 0}); });
  conv.error("a bias of another size", [] { conv2d(ones({1, 1, 2, 2}), ones({2, 1, 1, 1}), ones({1})); });
  conv.error("mixed dtypes", [] { conv2d(ones({1, 1, 2, 2}, f16), ones({1, 1, 1, 1})); });
  conv.error("a matrix", [] { conv2d(ones({2, 2}), ones({1, 1, 1, 1})); });

  Entry& input = make_entry(entries, "conv2d_input_gradient");
  for (const ConvCase& c : conv_cases()) {
    const Shape y = convolved_shape(c.x, c.weight, c.options);
    input.add(
        c.name, {uniform(y, -2, 2, 1), uniform(c.weight, -2, 2, 2)},
        [c](const Tensors& x) { return conv2d_input_gradient(x[0], x[1], c.x, c.options); },
        [c](const Arrays& x) {
          Sums dx(c.x, x[0].dtype);
          for_each_product(c.x, c.weight, x[0].shape, c.options,
                           [&](const Shape& i, const Shape& w, const Shape& at) { dx.add(i, x[0][at] * x[1][w]); });
          return dx.totals();
        });
  }
  input.error("a shape that does not fit", [] {
    conv2d_input_gradient(ones({1, 1, 2, 2}), ones({1, 1, 3, 3}), {1, 1, 9, 9});
  });

  Entry& weight = make_entry(entries, "conv2d_weight_gradient");
  for (const ConvCase& c : conv_cases()) {
    const Shape y = convolved_shape(c.x, c.weight, c.options);
    weight.add(
        c.name, {uniform(c.x, -2, 2, 1), uniform(y, -2, 2, 2)},
        [c](const Tensors& x) { return conv2d_weight_gradient(x[0], x[1], c.weight, c.options); },
        [c](const Arrays& x) {
          Sums dw(c.weight, x[0].dtype);
          for_each_product(c.x, c.weight, x[1].shape, c.options,
                           [&](const Shape& i, const Shape& w, const Shape& at) { dw.add(w, x[0][i] * x[1][at]); });
          return dw.totals();
        });
  }
  weight.error("a shape that does not fit", [] {
    conv2d_weight_gradient(ones({1, 1, 4, 4}), ones({1, 1, 2, 2}), {1, 1, 9, 9});
  });
}

void register_transposed_convolution(std::vector<Entry>& entries) {
  Entry& entry = make_entry(entries, "conv_transpose2d");
  for (const TransposedCase& c : transposed_cases()) {
    const std::int64_t outputs = c.weight[1] * c.options.groups;
    const Tensor x = uniform(c.x, -2, 2, 1), w = uniform(c.weight, -2, 2, 2), bias = uniform({outputs}, -2, 2, 3);
    entry.add(
        c.name, {x, w, bias}, [c](const Tensors& x) { return conv_transpose2d(x[0], x[1], x[2], c.options); },
        [c](const Arrays& x) { return transposed(x, c.options); });
  }
  const auto op = [](const Tensors& x) { return conv_transpose2d(x[0], x[1]); };
  const auto naive = [](const Arrays& x) { return transposed(x, {}); };
  const Tensor weight = uniform({2, 3, 2, 2}, -2, 2, 2);
  entry.add("without bias", {uniform({1, 2, 3, 3}, -2, 2, 1), weight}, op, naive);
  entry.add("one image without a batch", {uniform({2, 4, 3}, -2, 2, 1), weight}, op, without_batch(naive));
  const Tensor x = ones({1, 2, 4, 4}), w = ones({2, 3, 3, 3});
  entry.error("other channels", [=] { conv_transpose2d(x, ones({3, 2, 3, 3})); });
  entry.error("groups that do not divide", [=] { conv_transpose2d(x, w, {}, {.groups = 3}); });
  entry.error("output padding of a stride", [=] { conv_transpose2d(x, w, {}, {.stride = 2, .output_padding = 2}); });
  entry.error("nothing left", [=] { conv_transpose2d(x, w, {}, {.padding = 3}); });
  entry.error("stride 0", [=] { conv_transpose2d(x, w, {}, {.stride = 0}); });
  entry.error("a bias of another size", [=] { conv_transpose2d(x, w, ones({2})); });
  entry.error("mixed dtypes", [=] { conv_transpose2d(x.to(f16), w); });
  entry.error("a matrix", [=] { conv_transpose2d(ones({2, 2}), w); });
}

// --- pools -------------------------------------------------------------------------------------------------

using Window = std::function<Num(const std::vector<Num>& inside,
                                 std::int64_t outside)>;  // outside: padding in the window

Array pooled(const Array& x, Pair kernel, PoolOptions o, const Window& f) {
  if (o.stride.h == 0) o.stride = kernel;
  Shape shape = x.shape;
  const std::size_t h = shape.size() - 2, w = shape.size() - 1;
  shape[h] = positions(x.shape[h], kernel.h, o.stride.h, o.padding.h, o.dilation.h);
  shape[w] = positions(x.shape[w], kernel.w, o.stride.w, o.padding.w, o.dilation.w);
  Array y(shape, x.dtype);
  for (const Shape& at : oracle::indices(shape)) {
    std::vector<Num> inside;
    for (std::int64_t r = 0; r < kernel.h; ++r)
      for (std::int64_t s = 0; s < kernel.w; ++s) {
        const std::int64_t i = at[h] * o.stride.h - o.padding.h + r * o.dilation.h,
                           j = at[w] * o.stride.w - o.padding.w + s * o.dilation.w;
        if (i >= 0 && j >= 0 && i < x.shape[h] && j < x.shape[w])
          inside.push_back(x[oracle::with(oracle::with(at, h, i), w, j)]);
      }
    y[at] = f(inside, kernel.h * kernel.w - static_cast<std::int64_t>(inside.size()));
  }
  return y;
}

Num first_largest(const std::vector<Num>& x) {
  Num best = x[0];
  for (const Num& v : x)
    if (!std::isnan(best.value) && (std::isnan(v.value) || v.value > best.value)) best = v;
  return best;
}

Num mean_of(const std::vector<Num>& x, std::int64_t count) {
  return oracle::total(x) / Num(static_cast<double>(count));
}

void register_pools(std::vector<Entry>& entries) {
  struct PoolCase {
    const char* name;
    Shape x;
    Pair kernel;
    PoolOptions options;
  };
  const std::vector<PoolCase> cases = {
      {"2x2", {2, 2, 4, 6}, 2, {}},
      {"a rest that is left out", {1, 2, 5, 7}, {2, 3}, {}},
      {"overlapping", {2, 1, 5, 5}, 3, {.stride = 1}},
      {"padded", {1, 2, 4, 5}, 3, {.stride = 2, .padding = 1}},
      {"one image without a batch", {3, 4, 4}, 2, {}},
      {"1x1", {2, 3, 2, 2}, 1, {}},
      {"no images", {0, 2, 4, 4}, 2, {}},
      {"more channels than a vector", {1, 37, 5, 5}, {3, 2}, {.stride = {2, 1}, .padding = {1, 1}}}};
  Entry& most = make_entry(entries, "max_pool2d", Derivatives::any, Accuracy::rounded_once);
  Entry average{.name = "avg_pool2d", .cases = {}, .errors = {}};
  for (const PoolCase& c : cases) {
    most.add(
        c.name, {distinct(c.x)}, [c](const Tensors& x) { return max_pool2d(x[0], c.kernel, c.options); },
        [c](const Arrays& x) {
          return pooled(x[0], c.kernel, c.options,
                        [](const auto& inside, std::int64_t) { return first_largest(inside); });
        });
    for (bool count_padding : {true, false}) {
      PoolOptions options = c.options;
      options.count_include_pad = count_padding;
      average.add(
          fmt::format("{}{}", c.name, count_padding ? "" : ", not counting padding"), {uniform(c.x)},
          [=](const Tensors& x) { return avg_pool2d(x[0], c.kernel, options); },
          [=](const Arrays& x) {
            return pooled(x[0], c.kernel, options, [=](const auto& inside, std::int64_t outside) {
              return mean_of(inside, static_cast<std::int64_t>(inside.size()) + (count_padding ? outside : 0));
            });
          });
    }
  }
  const auto two = [](const Tensors& x) { return max_pool2d(x[0], 2); };
  const auto two_oracle = [](const Arrays& x) {
    return pooled(x[0], 2, {}, [](const auto& inside, std::int64_t) { return first_largest(inside); });
  };
  most.add(
      "dilated", {distinct({1, 2, 6, 5})},
      [](const Tensors& x) {
        return max_pool2d(x[0], 2, {.stride = 1, .dilation = {2, 3}});
      },
      [](const Arrays& x) {
        return pooled(x[0], 2, {.stride = 1, .dilation = {2, 3}},
                      [](const auto& inside, std::int64_t) { return first_largest(inside); });
      });
  most.add("ties go to the first", {integers({2, 2, 4, 4}, -1, 1).to(f64)}, two, two_oracle).smooth = false;
  Case& special = most.add("special values", {special_values().slice(0, 0, 24).reshape({1, 1, 4, 6})}, two, two_oracle);
  special.gradients = special.smooth = false;
  most.error("a window that fits nowhere", [] { max_pool2d(ones({1, 1, 2, 2}), 3); });
  most.error("too much padding", [] { max_pool2d(ones({1, 1, 4, 4}), 2, {.padding = 2}); });
  most.error("a matrix", [] { max_pool2d(ones({4, 4}), 2); });
  most.error("integers", [] { max_pool2d(ones({1, 1, 4, 4}, i64), 2); });

  average.add(
      "a sum above the range of f16", {full({1, 1, 3, 3}, 60000, f64)},
      [](const Tensors& x) { return avg_pool2d(x[0], 3); },
      [](const Arrays& x) {
        return pooled(x[0], 3, {}, [](const auto& inside, std::int64_t) { return mean_of(inside, 9); });
      });
  average.error("a window that fits nowhere", [] { avg_pool2d(ones({1, 1, 2, 2}), 3); });
  average.error("kernel 0", [] { avg_pool2d(ones({1, 1, 2, 2}), 0); });
  average.error("integers", [] { avg_pool2d(ones({1, 1, 4, 4}, i64), 2); });
  entries.push_back(std::move(average));

  Entry& adaptive = make_entry(entries, "adaptive_avg_pool2d");
  const auto to = [&](const Shape& shape, Pair output) {
    adaptive.add(
        fmt::format("{} to {}x{}", shape.str(), output.h, output.w), {uniform(shape)},
        [=](const Tensors& x) { return adaptive_avg_pool2d(x[0], output); },
        [=](const Arrays& x) {
          Shape result = shape;
          const std::size_t h = shape.size() - 2, w = shape.size() - 1;
          result[h] = output.h;
          result[w] = output.w;
          Array y(result, x[0].dtype);
          for (const Shape& at : oracle::indices(result)) {
            std::vector<Num> inside;
            for (std::int64_t i = at[h] * shape[h] / output.h; i * output.h < (at[h] + 1) * shape[h]; ++i)
              for (std::int64_t j = at[w] * shape[w] / output.w; j * output.w < (at[w] + 1) * shape[w]; ++j)
                inside.push_back(x[0][oracle::with(oracle::with(at, h, i), w, j)]);
            y[at] = mean_of(inside, static_cast<std::int64_t>(inside.size()));
          }
          return y;
        });
  };
  to({2, 3, 4, 5}, 1);
  to({2, 3, 4, 6}, {2, 3});
  to({1, 2, 5, 7}, {3, 2});
  to({1, 2, 3, 2}, {5, 4});
  to({3, 4, 4}, 2);
  to({0, 2, 4, 4}, 1);
  adaptive.error("output 0", [] { adaptive_avg_pool2d(ones({1, 1, 2, 2}), 0); });
  adaptive.error("a matrix", [] { adaptive_avg_pool2d(ones({2, 2}), 1); });
  adaptive.error("integers", [] { adaptive_avg_pool2d(ones({1, 1, 4, 4}, i64), 2); });
}

}  // namespace

void register_windows(std::vector<Entry>& entries) {
  register_convolutions(entries);
  register_transposed_convolution(entries);
  register_pools(entries);
}

}  // namespace halfgrad::testing
