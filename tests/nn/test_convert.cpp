#include "nn/module.h"

#include "engine/ops/reduce.h"
#include "engine/random.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;

TEST_CASE("to(f16) converts all but batch norm and integers, and to(f32) takes it back") {
  Mixed net;
  auto& norm = net.features.get<nn::BatchNorm2d>(1);
  norm.running_mean.fill_(1.0 / 3);  // no f16 number
  const Tensor mean_before = norm.running_mean.clone(), scale_before = net.scale.detach().clone();

  net.to(f16);
  CHECK(net.dtype() == f16);
  CHECK(net.scale.dtype() == f16);
  CHECK(net.features.get<nn::Conv2d>(0).weight.dtype() == f16);
  CHECK(net.counts.dtype() == i64);
  for (const Tensor& t : {norm.weight, norm.bias, norm.running_mean, norm.running_var}) CHECK(t.dtype() == f32);
  CHECK(same_bits(norm.running_mean, mean_before));
  CHECK(same_bits(net.scale, scale_before.to(f16)));

  net.to(f32);
  CHECK(net.dtype() == f32);
  CHECK(same_bits(norm.running_mean, mean_before));
  CHECK(same_bits(net.scale, scale_before.to(f16).to(f32)));
  net.to(f64);
  CHECK(norm.running_mean.dtype() == f64);
  net.to(f16);
  CHECK(norm.running_mean.dtype() == f32);
}

TEST_CASE("conversion keeps handles, ties, requires_grad and unchanged gradients") {
  Net net;
  net.b = nn::Linear(4, 3);
  net.b.weight = net.a.weight;
  net.b.requires_grad_(false);
  const Tensors handles = net.parameters();
  net.a.bias.set_grad(ones({3}));
  net.to(f32);
  CHECK(net.a.bias.grad().defined());
  net.to(f16);
  CHECK_FALSE(net.a.bias.grad().defined());
  CHECK(net.b.weight.is_same(net.a.weight));
  for (const Tensor& handle : handles) CHECK(handle.dtype() == f16);
  CHECK(net.a.bias.requires_grad());
  CHECK_FALSE(net.b.bias.requires_grad());
}

TEST_CASE("only floats make a model") {
  CHECK(has(error_of([] { Net().to(i32); }), "Net: to(i32)"));
}

TEST_CASE("an f16 model with batch norm runs and learns, f16 outside, f32 inside") {
  manual_seed(4);
  nn::Sequential net(nn::Conv2d(1, 2, 3), nn::BatchNorm2d(2), nn::ReLU(), nn::Flatten(), nn::Linear(2 * 4 * 4, 3));
  const Tensor x = randn({5, 1, 6, 6});
  nn::Sequential wide = net;
  const Tensor y = wide(x).detach();
  net.to(f16);
  auto& norm = net.get<nn::BatchNorm2d>(1);
  const Tensor mean_before = norm.running_mean.clone();
  const Tensor small = net(x.to(f16));
  CHECK(small.dtype() == f16);
  check_values(small, y.to_vector<double>(), 0.01);
  CHECK_FALSE(same_bits(norm.running_mean, mean_before));
  CHECK(norm.running_mean.dtype() == f32);
  sum(small).backward();
  CHECK(norm.weight.grad().dtype() == f32);
  CHECK(net.get<nn::Linear>(4).weight.grad().dtype() == f16);
}

TEST_CASE("layers with parameters run in f16 and f64 as in f32") {
  manual_seed(6);
  nn::Sequential net(nn::Embedding(10, 4), nn::LayerNorm(4), nn::Linear(4, 6), nn::GELU(), nn::Flatten());
  const Tensor index = randint(0, 10, {3, 2});
  const std::vector<double> expected = net(index).to_vector<double>();
  for (const DType dtype : {f16, f64}) {
    nn::Sequential other = net;
    other.unshare().to(dtype);
    const Tensor y = other(index);
    CHECK(y.dtype() == dtype);
    check_values(y, expected, dtype == f16 ? 0.01 : 1e-5);
  }
}
