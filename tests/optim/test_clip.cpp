#include <doctest/doctest.h>

#include <cmath>

#include "optim/clip.h"
#include "tests/optim/optim_testing.h"

using namespace halfgrad;
using namespace halfgrad::optim;
using namespace halfgrad::testing;

TEST_CASE("gradients are clipped by their common norm") {
  for (const DType dtype : {f16, f32, f64}) {
    Tensor a = zeros({2}, dtype).requires_grad_(), b = zeros({1}, dtype).requires_grad_();
    const Tensor unused = zeros({1}, dtype).requires_grad_();
    a.set_grad(tensor({3, 4}, dtype));
    b.set_grad(tensor({-12}, dtype));
    CHECK(clip_grad_norm_({a, unused, b}, 6.5) == 13);
    // The factor is 6.5 / (13 + 1e-6); each result is rounded once.
    const double epsilon = dtype == f16 ? 0x1p-11 : 1e-7;
    CHECK(a.grad().to_vector<double>()[0] == doctest::Approx(1.5).epsilon(epsilon));
    CHECK(a.grad().to_vector<double>()[1] == doctest::Approx(2).epsilon(epsilon));
    CHECK(b.grad().to_vector<double>()[0] == doctest::Approx(-6).epsilon(epsilon));
    CHECK_FALSE(unused.grad().defined());
  }
}

TEST_CASE("gradients below the limit keep their bits") {
  Tensor a = zeros({50}).requires_grad_();
  const Tensor grad = random_tensor({50}, f32, 1);
  a.set_grad(grad.clone());
  const double norm = clip_grad_norm_({a}, 100);
  CHECK(norm < 50);
  CHECK(same_bits(a.grad(), grad));
  CHECK(clip_grad_norm_({}, 1) == 0);
}

TEST_CASE("the norm of halfs whose squares overflow a half, or vanish in one, is right") {
  Tensor a = zeros({2}, f16).requires_grad_();
  a.set_grad(tensor({30000, 40000}, f16));
  CHECK(grad_norm(stats_of({a.grad()})) == 50000);
  CHECK(grad_norm(stats_of({a.grad()}), 1.0 / 1024) == 50000.0 / 1024);
  a.set_grad(tensor({3 * 0x1p-24, 4 * 0x1p-24}, f16));
  CHECK(grad_norm(stats_of({a.grad()})) == 5 * 0x1p-24);
}

TEST_CASE("the clip factor passed to step() clips true gradients") {
  Tensor w = zeros({2}, f16).requires_grad_();
  SGD optimizer({w}, {.lr = 1});
  optimizer.use_masters();
  w.set_grad(tensor({3072, 4096}, f16));  // 3 and 4, of a loss that was scaled by 1024
  const double unscale = 1.0 / 1024;
  const double norm = grad_norm(optimizer.grad_stats(), unscale);
  CHECK(norm == 5);
  optimizer.step(unscale * clip_factor(norm, 1));
  const std::vector<double> master = optimizer.groups()[0].entries[0].master.to_vector<double>();
  CHECK(master[0] == doctest::Approx(-0.6).epsilon(1e-6));
  CHECK(master[1] == doctest::Approx(-0.8).epsilon(1e-6));
}

TEST_CASE("the clip factor is PyTorch's") {
  CHECK(clip_factor(4, 1) == 1 / (4 + 1e-6));
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(2, 0) == 0);
  CHECK_THROWS_AS(clip_factor(1, -1), Error);
}
