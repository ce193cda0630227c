// Does it work at all? One look at each floor, in less than a second: `meson test --suite smoke`.

#include <doctest/doctest.h>

#include "halfgrad.h"

using namespace halfgrad;

TEST_CASE("a half rounds to nearest, ties to even") {
  CHECK(half(1.0f + 0x1p-11f).bits() == 0x3C00);    // midway between 1 and the next half
  CHECK(half(1.0f + 0x1.8p-10f).bits() == 0x3C02);  // midway between the next two
  CHECK(float(half(65519.0f)) == 65504);
  CHECK(isinf(half(65520.0f)));
}

TEST_CASE("a tensor op: f16 is computed in f32 and rounded once") {
  const Tensor y = matmul(full({2, 3}, 200, f16), full({3, 2}, 100, f16));
  CHECK(y.dtype() == f16);
  CHECK(y.to_vector<float>() == std::vector<float>(4, 60000));
}

TEST_CASE("a gradient in f16") {
  Tensor x = tensor({1, 2, 3}, f16).requires_grad_();
  sum(square(x) * 0.5).backward();
  CHECK(x.grad().dtype() == f16);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{1, 2, 3});
}

TEST_CASE("twenty steps of mixed precision training make the loss fall") {
  manual_seed(1);
  nn::Sequential model(nn::Linear(2, 16), nn::ReLU(), nn::Linear(16, 3));
  Learner learn(data::blobs({.n = 800, .batch_size = 32}), model, nn::cross_entropy,
                {.opt = optim::adam(), .silent = true});
  learn.to_fp16();
  const double before = learn.validate()[0];
  learn.fit(1, 0.02);
  CHECK(learn.state.iteration == 20);
  CHECK(learn.validate()[0] < 0.5 * before);
}
