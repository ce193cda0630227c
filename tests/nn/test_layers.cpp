#include <cmath>

#include "engine/ops/reduce.h"
#include "engine/random.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// Applies f to every element, in double.
std::vector<double> each(const Tensor& x, const std::function<double(double)>& f) {
  std::vector<double> values = x.to_vector<double>();
  for (double& v : values) v = f(v);
  return values;
}

std::vector<double> normalized(const std::vector<double>& x, double eps) {
  double mean = 0, var = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) var += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y;
  for (const double v : x) y.push_back((v - mean) / std::sqrt(var + eps));
  return y;
}

}  // namespace

TEST_CASE("Linear is x W^T + b on the last dimension") {
  manual_seed(1);
  nn::Linear layer(3, 2), plain(3, 2, {.bias = false});
  plain.weight = layer.weight;
  CHECK(plain.parameters().size() == 1);
  const Tensor x = randn({2, 4, 3});
  const auto xs = x.to_vector<double>(), w = layer.weight.to_vector<double>(), b = layer.bias.to_vector<double>();
  std::vector<double> with, without;
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t o = 0; o < 2; ++o) {
      double dot = 0;
      for (std::size_t i = 0; i < 3; ++i) dot += xs[row * 3 + i] * w[o * 3 + i];
      without.push_back(dot);
      with.push_back(dot + b[o]);
    }
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{2, 4, 2});
  check_values(y, with, 1e-6);
  check_values(plain(x), without, 1e-6);
}

TEST_CASE("Conv2d hands its options to the convolution") {
  manual_seed(2);
  nn::Conv2d layer(2, 4, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  const Tensor x = randn({2, 2, 5, 6});
  const auto at = [](const std::vector<double>& v, const Shape& s, std::int64_t a, std::int64_t b, std::int64_t c,
                     std::int64_t d) { return v[static_cast<std::size_t>(((a * s[1] + b) * s[2] + c) * s[3] + d)]; };
  const auto xs = x.to_vector<double>(), w = layer.weight.to_vector<double>(), b = layer.bias.to_vector<double>();
  std::vector<double> expected;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t o = 0; o < 4; ++o)
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 4; ++j) {
          double sum = b[static_cast<std::size_t>(o)];
          for (std::int64_t r = 0; r < 3; ++r)
            for (std::int64_t s = 0; s < 2; ++s) {
              const std::int64_t row = 2 * i + r - 1, column = j + 2 * s;
              if (row >= 0 && row < 5)
                sum += at(xs, x.shape(), n, o / 2, row, column) * at(w, layer.weight.shape(), o, 0, r, s);
            }
          expected.push_back(sum);
        }
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{2, 4, 3, 4});
  check_values(y, expected, 1e-5);
  CHECK(layer.describe() == "Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)");
}

TEST_CASE("ConvTranspose2d hands its options to the transposed convolution") {
  manual_seed(6);
  nn::ConvTranspose2d layer(
      4, 2, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  const Tensor x = randn({2, 4, 3, 4});
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{2, 2, 6, 6});
  const auto at = [](const std::vector<double>& v, const Shape& s, std::int64_t a, std::int64_t b, std::int64_t c,
                     std::int64_t d) { return v[static_cast<std::size_t>(((a * s[1] + b) * s[2] + c) * s[3] + d)]; };
  const auto xs = x.to_vector<double>(), w = layer.weight.to_vector<double>(), b = layer.bias.to_vector<double>();
  std::vector<double> expected;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t o = 0; o < 2; ++o)
      for (std::int64_t row = 0; row < 6; ++row)
        for (std::int64_t column = 0; column < 6; ++column) {
          double sum = b[static_cast<std::size_t>(o)];
          for (std::int64_t c = 2 * o; c < 2 * o + 2; ++c)
            for (std::int64_t i = 0; i < 3; ++i)
              for (std::int64_t j = 0; j < 4; ++j) {
                const std::int64_t r = row + 1 - 2 * i, twice_s = column - j;
                if (r >= 0 && r < 3 && (twice_s == 0 || twice_s == 2))
                  sum += at(xs, x.shape(), n, c, i, j) * at(w, layer.weight.shape(), c, 0, r, twice_s / 2);
              }
          expected.push_back(sum);
        }
  check_values(y, expected, 1e-5);
  CHECK(layer.describe() ==
        "ConvTranspose2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), output_padding=(1, 0), "
        "groups=2)");
}

TEST_CASE("ConvTranspose2d has a weight and a bias, and doubles an image as in a generator") {
  nn::Sequential net(nn::ConvTranspose2d(8, 4, 4, {.stride = 2, .padding = 1, .bias = false}), nn::ReLU(),
                     nn::ConvTranspose2d(4, 1, 4, {.stride = 2, .padding = 1}));
  std::vector<std::string> names;
  for (const auto& [name, x] : net.state_dict()) names.push_back(name + " " + x.shape().str());
  CHECK(names == std::vector<std::string>{"0.weight [8, 4, 4, 4]", "2.weight [4, 1, 4, 4]", "2.bias [1]"});
  CHECK(net[0].describe() == "ConvTranspose2d(8, 4, 4, stride=2, padding=1, bias=false)");
  net.to(f16);
  const Tensor y = net(ones({3, 8, 4, 4}, f16));
  CHECK(y.dtype() == f16);
  CHECK(y.shape() == Shape{3, 1, 16, 16});
  sum(y).backward();
  for (const Tensor& parameter : net.parameters()) CHECK(parameter.grad().shape() == parameter.shape());
  CHECK(has(nn::summary(net, {2, 8, 4, 4}),
            "0 ConvTranspose2d(8, 4, 4, stride=2, padding=1, bias=false)  [2, 4, 8, 8]             512  f16\n"));
}

TEST_CASE("BatchNorm uses the batch in training and the running statistics in evaluation") {
  nn::BatchNorm1d layer(2, {.eps = 1e-3, .momentum = 0.25});
  layer.weight.detach().copy_(tensor({2, 3}));
  layer.bias.detach().copy_(tensor({1, -1}));
  const Tensor x = tensor({{1, 10}, {2, 30}, {6, 20}});
  const auto n0 = normalized({1, 2, 6}, 1e-3), n1 = normalized({10, 30, 20}, 1e-3);
  std::vector<double> expected;
  for (std::size_t i = 0; i < 3; ++i) {
    expected.push_back(2 * n0[i] + 1);
    expected.push_back(3 * n1[i] - 1);
  }
  check_values(layer(x), expected, 1e-5);
  check_values(layer.running_mean, {0.25 * 3, 0.25 * 20}, 1e-6);
  check_values(layer.running_var, {0.75 + 0.25 * 7, 0.75 + 0.25 * 100},
               1e-6);  // the unbiased variances are 7 and 100

  layer.eval();
  const Tensor mean_before = layer.running_mean.clone();
  check_values(layer(tensor({{1, 10}})),
               {2 * (1 - 0.75) / std::sqrt(2.5 + 1e-3) + 1, 3 * (10 - 5) / std::sqrt(25.75 + 1e-3) - 1}, 1e-5);
  CHECK(same_bits(layer.running_mean, mean_before));
}

TEST_CASE("BatchNorm2d normalises over the batch and the plane") {
  manual_seed(3);
  nn::BatchNorm2d layer(3);
  const Tensor y = layer(randn({4, 3, 5, 5}) * 3 + 2);
  check_values(mean(y, {0, 2, 3}), {0, 0, 0}, 1e-5);
  check_values(var(y, {0, 2, 3}, false, 0), {1, 1, 1}, 1e-4);
}

TEST_CASE("LayerNorm normalises each sample") {
  nn::LayerNorm layer(4);
  layer.weight.detach().copy_(tensor({1, 2, 3, 4}));
  layer.bias.detach().fill_(0.5);
  const Tensor x = tensor({{1, 2, 3, 10}, {-1, 0, 0, 1}});
  std::vector<double> expected;
  for (const auto& row : {std::vector<double>{1, 2, 3, 10}, std::vector<double>{-1, 0, 0, 1}}) {
    const auto n = normalized(row, 1e-5);
    for (std::size_t i = 0; i < 4; ++i) expected.push_back(n[i] * static_cast<double>(i + 1) + 0.5);
  }
  check_values(layer(x), expected, 1e-5);
  CHECK(nn::LayerNorm({2, 2})(x.reshape({2, 2, 2})).shape() == Shape{2, 2, 2});
}

TEST_CASE("activations are their functions") {
  const Tensor x = tensor({-3, -0.5, 0, 0.25, 2});
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  check_values(nn::ReLU()(x), each(x, [](double v) { return std::max(v, 0.0); }));
  check_values(nn::LeakyReLU(0.25)(x), each(x, [](double v) { return v > 0 ? v : 0.25 * v; }));
  check_values(nn::ELU(2)(x), each(x, [](double v) { return v > 0 ? v : 2 * std::expm1(v); }), 1e-6);
  check_values(nn::Softplus(3)(x), each(x, [](double v) { return std::log1p(std::exp(3 * v)) / 3; }), 1e-6);
  check_values(nn::GELU()(x), each(x, [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); }), 1e-6);
  check_values(nn::SiLU()(x), each(x, [&](double v) { return v * sigmoid(v); }), 1e-6);
  check_values(nn::Tanh()(x), each(x, [](double v) { return std::tanh(v); }), 1e-6);
  check_values(nn::Sigmoid()(x), each(x, sigmoid), 1e-6);
  check_values(nn::Softmax(0)(tensor({0, 0})), {0.5, 0.5});
  CHECK(nn::LeakyReLU().describe() == "LeakyReLU(0.01)");
}

TEST_CASE("pools take the largest or the mean of each window") {
  const Tensor x = arange(0, 16).reshape({1, 1, 4, 4});
  check_values(nn::MaxPool2d(2)(x), {5, 7, 13, 15});
  check_values(nn::MaxPool2d(3, {.stride = 1})(x), {10, 11, 14, 15});
  check_values(nn::AvgPool2d(2)(x), {2.5, 4.5, 10.5, 12.5});
  check_values(nn::AvgPool2d(2, {.padding = 1, .count_include_pad = false})(x), {0, 1.5, 3, 6, 7.5, 9, 12, 13.5, 15});
  check_values(nn::AdaptiveAvgPool2d()(x), {7.5});
  check_values(nn::AdaptiveAvgPool2d({2, 1})(x), {3.5, 11.5});
  CHECK(nn::MaxPool2d(3, {.stride = 2, .padding = 1}).describe() == "MaxPool2d(3, stride=2, padding=1)");
}

TEST_CASE("Embedding looks rows up, and the padding row gets no gradient") {
  nn::Embedding table(4, 2, {.padding_idx = 1});
  table.weight.detach().copy_(tensor({{0, 1}, {0, 0}, {4, 5}, {6, 7}}));
  const Tensor index = tensor({{3, 1}, {3, 2}}, i64);
  const Tensor y = table(index);
  CHECK(y.shape() == Shape{2, 2, 2});
  check_values(y, {6, 7, 0, 0, 6, 7, 4, 5});
  sum(y).backward();
  check_values(table.weight.grad(), {0, 0, 0, 0, 1, 1, 2, 2});
  CHECK(table.describe() == "Embedding(4, 2, padding_idx=1)");
}

TEST_CASE("Dropout works while training only") {
  manual_seed(5);
  nn::Dropout layer(0.5);
  const Tensor x = ones({1000});
  const double kept = sum(layer(x)).item() / 2;
  CHECK(std::abs(kept - 500) < 5 * std::sqrt(250.0));
  layer.eval();
  CHECK(layer(x).is_same(x));
}

TEST_CASE("layers refuse impossible sizes") {
  CHECK(has(error_of([] { nn::Linear(0, 3); }), "Linear: 0 input"));
  CHECK(has(error_of([] { nn::Conv2d(3, 4, 0); }), "Conv2d: 3 input channels, 4 output channels, kernel 0x0"));
  CHECK(has(error_of([] { nn::Conv2d(3, 4, 1, {.groups = 2}); }), "2 groups"));
  CHECK(has(error_of([] { nn::ConvTranspose2d(3, 0, 4); }), "ConvTranspose2d: 3 input channels, 0 output channels"));
  CHECK(has(error_of([] { nn::ConvTranspose2d(4, 3, 1, {.groups = 2}); }), "ConvTranspose2d: 2 groups"));
  CHECK(has(error_of([] { nn::BatchNorm2d(0); }), "0 channels"));
  CHECK(has(error_of([] { nn::LayerNorm(Shape{}); }), "LayerNorm"));
  CHECK(has(error_of([] { nn::Embedding(0, 3); }), "Embedding: 0 vectors"));
  CHECK(has(error_of([] { nn::Embedding(3, 3, {.padding_idx = 3}); }), "padding_idx is 3"));
  CHECK(has(error_of([] { nn::Dropout(2); }), "Dropout: p is 2"));
}

TEST_CASE("a wrong input is an error that names the layer") {
  const auto message = [](nn::Module& layer, const Tensor& x) { return error_of([&] { layer(x); }); };
  nn::Linear linear(3, 2);
  nn::Conv2d conv(3, 4, 3);
  nn::ConvTranspose2d transposed(3, 4, 3, {.output_padding = 1});
  nn::BatchNorm2d norm2(3);
  nn::BatchNorm1d norm1(3);
  nn::LayerNorm layer_norm(3);
  nn::Embedding table(4, 2);
  nn::MaxPool2d pool(2);
  CHECK(has(message(linear, ones({2, 4})), "Linear(3, 2): "));
  CHECK(has(message(linear, ones({2, 3}, f16)), "f16"));
  CHECK(has(message(conv, ones({1, 2, 5, 5})), "Conv2d(3, 4, 3): "));
  CHECK(has(message(conv, ones({1, 3, 2, 2})), "Conv2d(3, 4, 3): "));
  CHECK(has(message(transposed, ones({1, 2, 5, 5})), "has 2 channels but weight [3, 4, 3, 3] expects 3"));
  CHECK(has(message(transposed, ones({1, 3, 5, 5})),
            "ConvTranspose2d(3, 4, 3, output_padding=1): conv_transpose2d: output_padding is 1"));
  CHECK(has(message(norm2, ones({2, 3})), "BatchNorm2d takes [N, C, H, W]"));
  CHECK(has(message(norm1, ones({2, 3, 4, 4})), "BatchNorm1d takes [N, C] and [N, C, L]"));
  CHECK(has(message(norm2, ones({2, 4, 5, 5})), "BatchNorm2d(3"));
  CHECK(has(message(layer_norm, ones({2, 4})), "LayerNorm([3]"));
  CHECK(has(message(table, ones({2})), "Embedding(4, 2): "));
  CHECK(has(message(table, tensor({4}, i64)), "Embedding(4, 2): "));
  CHECK(has(message(pool, ones({2, 3})), "MaxPool2d(2): "));
}
