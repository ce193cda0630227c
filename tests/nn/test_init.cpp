#include "nn/init.h"

#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/random.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;
namespace init = halfgrad::nn::init;

namespace {

// Mean 0 and this deviation, within six standard errors.
void check_statistics(const Tensor& x, double deviation) {
  const auto n = static_cast<double>(x.numel());
  CHECK(std::abs(mean(x).item()) < 6 * deviation / std::sqrt(n));
  CHECK(std::abs(stddev(x).item() / deviation - 1) < 6 / std::sqrt(2 * n));
}

// Uniform in [-bound, bound): the deviation says so together with the extremes.
void check_uniform(const Tensor& x, double bound) {
  check_statistics(x, bound / std::sqrt(3.0));
  const double reach = max(abs(x)).item();
  CHECK(reach <= bound);
  CHECK(reach > 0.99 * bound);
}

}  // namespace

TEST_CASE("Linear and convolutions start uniform in 1/sqrt(fan_in), weight and bias, as in PyTorch") {
  manual_seed(42);
  const nn::Linear linear(400, 1000);
  check_uniform(linear.weight.detach(), 1 / 20.0);
  check_uniform(linear.bias.detach(), 1 / 20.0);
  const nn::Conv2d conv(32, 1000, {3, 2}, {.groups = 2});
  CHECK(conv.weight.shape() == Shape{1000, 16, 3, 2});
  check_uniform(conv.weight.detach(), 1 / std::sqrt(96.0));
  check_uniform(conv.bias.detach(), 1 / std::sqrt(96.0));
  // PyTorch takes the second size of the weight for the inputs here, too.
  const nn::ConvTranspose2d transposed(500, 1000, {3, 2}, {.groups = 50});
  CHECK(transposed.weight.shape() == Shape{500, 20, 3, 2});
  check_uniform(transposed.weight.detach(), 1 / std::sqrt(120.0));
  check_uniform(transposed.bias.detach(), 1 / std::sqrt(120.0));
  CHECK(transposed.weight.requires_grad());
  CHECK(transposed.bias.requires_grad());
  CHECK(linear.weight.requires_grad());
  CHECK(linear.weight.is_leaf());
  CHECK(linear.bias.requires_grad());
}

TEST_CASE("Embedding starts standard normal with zeros in the padding row") {
  manual_seed(43);
  const nn::Embedding table(100, 64, {.padding_idx = 3});
  check_values(table.weight.detach()[3], std::vector<double>(64, 0));
  check_statistics(table.weight.detach().slice(0, 4), 1);
  CHECK(table.weight.requires_grad());
}

TEST_CASE("norm layers start as the plain normalisation") {
  const nn::BatchNorm1d norm(3);
  check_values(norm.weight, {1, 1, 1});
  check_values(norm.bias, {0, 0, 0});
  check_values(norm.running_mean, {0, 0, 0});
  check_values(norm.running_var, {1, 1, 1});
  CHECK_FALSE(norm.running_mean.requires_grad());
  check_values(nn::LayerNorm({1, 2}).weight, {1, 1});
}

TEST_CASE("the same seed gives the same layers") {
  manual_seed(7);
  const nn::Linear a(5, 6);
  manual_seed(7);
  const nn::Linear b(5, 6);
  CHECK(same_bits(a.weight, b.weight));
  CHECK(same_bits(a.bias, b.bias));
}

TEST_CASE("Xavier and Kaiming have their papers' variances") {
  manual_seed(44);
  Tensor w = empty({200, 50, 3, 3});  // fan_in 450, fan_out 1800
  check_uniform(init::xavier_uniform_(w), std::sqrt(6 / 2250.0));
  check_statistics(init::xavier_normal_(w, 2), 2 * std::sqrt(2 / 2250.0));
  check_uniform(init::kaiming_uniform_(w), std::sqrt(6 / 450.0));
  check_statistics(init::kaiming_normal_(w), std::sqrt(2 / 450.0));
  check_statistics(init::kaiming_normal_(w, {.a = 0.5}), std::sqrt(2 / 1.25 / 450.0));
  check_statistics(init::kaiming_normal_(w, {.fan = init::Fan::out, .nonlinearity = init::Nonlinearity::linear}),
                   std::sqrt(1 / 1800.0));
}

TEST_CASE("gains are PyTorch's") {
  using init::Nonlinearity;
  CHECK(init::gain(Nonlinearity::linear) == 1);
  CHECK(init::gain(Nonlinearity::sigmoid) == 1);
  CHECK(init::gain(Nonlinearity::tanh) == 5.0 / 3);
  CHECK(init::gain(Nonlinearity::relu) == std::sqrt(2.0));
  CHECK(init::gain(Nonlinearity::leaky_relu, 0.2) == doctest::Approx(std::sqrt(2 / 1.04)));
  CHECK(init::gain(Nonlinearity::selu) == 0.75);
}

TEST_CASE("initialisers fill parameters in place, of any float dtype, outside of the graph") {
  nn::Linear layer(3, 3);
  const Tensor handle = layer.weight;
  check_values(init::eye_(layer.weight), {1, 0, 0, 0, 1, 0, 0, 0, 1});
  check_values(init::constant_(layer.bias, 0.5), {0.5, 0.5, 0.5});
  check_values(init::ones_(layer.bias), {1, 1, 1});
  check_values(init::zeros_(layer.bias), {0, 0, 0});
  CHECK(handle.is_same(layer.weight));
  CHECK(handle.is_leaf());
  CHECK(handle.requires_grad());
  layer.to(f16);
  init::uniform_(layer.weight, 2, 3);
  CHECK(layer.weight.dtype() == f16);
  CHECK(min(layer.weight.detach()).item() >= 2);
}

TEST_CASE("trunc_normal_ stays within its bounds") {
  manual_seed(45);
  Tensor x = empty({10000}, f64);
  init::trunc_normal_(x, 0, 1, -1, 1);
  CHECK(max(abs(x)).item() <= 1);
  check_statistics(x, 0.539560);  // of a normal cut at one deviation
  CHECK(has(error_of([&] { init::trunc_normal_(x, 0, 1, 5, 6); }), "trunc_normal_"));
}

TEST_CASE("orthogonal_ makes orthonormal rows or columns") {
  manual_seed(46);
  for (const Shape& shape : {Shape{4, 7}, Shape{7, 4}, Shape{4, 3, 2}}) {
    Tensor x = empty(shape, f64);
    const Tensor q = init::orthogonal_(x, 3).flatten(1);
    const Tensor product = q.size(0) <= q.size(1) ? matmul(q, q.t()) : matmul(q.t(), q);
    check_values(product, (9 * eye(product.size(0), -1, f64)).to_vector<double>(), 1e-12);
  }
}

TEST_CASE("initialisers say what is wrong") {
  Tensor vector = zeros({3});
  CHECK(has(error_of([&] { init::kaiming_uniform_(vector); }), "[3]"));
  CHECK(has(error_of([&] { init::eye_(vector); }), "eye_: found shape [3]"));
  CHECK(has(error_of([&] { init::orthogonal_(vector); }), "orthogonal_"));
}
