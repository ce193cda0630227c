#include <doctest/doctest.h>

#include "engine/autograd.h"
#include "engine/gradcheck.h"
#include "engine/ops/elementwise.h"

using namespace halfgrad;

namespace {

const Tensor a = tensor({{1, 2, 3}, {-4, 5, -6}}, f64);
const Tensor b = tensor({0.5, 1.5, 2.5}, f64);

// x^2, whose gradient is off by `error` at every element.
Tensor wrong_square(const Tensor& x, double error) {
  return record("wrong_square", (x * x).detach(), {x},
                [x, error](const Tensor& dy) { return Tensors{dy * (2 * x + error)}; });
}

}  // namespace

TEST_CASE("gradcheck accepts right gradients of several inputs") {
  CHECK(gradcheck([](const Tensors& x) { return x[0] * exp(x[1]); }, {a, b}).ok);
  CHECK(gradcheck(
            [](const Tensors& x) {
              return x[0].t().slice(1, 0, 1) / x[1].view({3, 1});
            },
            {a, b})
            .message.empty());
}

TEST_CASE("gradcheck accepts several outputs, and outputs and inputs that are no floats") {
  const Tensor coins = tensor({1, 0, 1}, boolean);
  const GradcheckReport report = gradcheck(
      [](const Tensors& x) {
        return Tensors{x[0] * x[2], x[0] > 0, where(x[1], square(x[2]), x[2])};
      },
      {a, coins, b});
  CHECK_MESSAGE(report.ok, report.message);
}

TEST_CASE("gradcheck converts float inputs to f64 and leaves the caller's tensors alone") {
  Tensor x = tensor({1, 2, 3}, f16).requires_grad_();
  CHECK(gradcheck([](const Tensors& x) { return tanh(x[0]); }, {x}).ok);
  CHECK(!x.grad().defined());
  CHECK(x.to_vector<double>() == std::vector<double>{1, 2, 3});
}

TEST_CASE("gradcheck finds a wrong gradient and says where") {
  const Tensor only_one = tensor({{0, 0, 0}, {0, 1e-3, 0}}, f64);
  const GradcheckReport report = gradcheck(
      [&](const Tensors& x) {
        return x[1] * record("wrong", (x[0] * x[0]).detach(), {x[0]},
                             [x0 = x[0], only_one](const Tensor& dy) { return Tensors{dy * 2 * x0 + only_one}; });
      },
      {a, b});
  CHECK(!report.ok);
  CHECK(report.input == 0);
  CHECK(report.element == 4);
  CHECK(report.analytic - report.numeric == doctest::Approx(1e-3).epsilon(0.01));
  CHECK(report.message.find("element [1, 1] of input 0 [2, 3]") != std::string::npos);
  CHECK(!gradcheck([](const Tensors& x) { return wrong_square(x[0], 1e-4); }, {b}).ok);
}

TEST_CASE("gradcheck finds a gradient that is missing") {
  const GradcheckReport report = gradcheck([](const Tensors& x) { return x[0] * x[1].detach(); }, {a, b});
  CHECK(!report.ok);
  CHECK(report.input == 1);
  CHECK(report.analytic == 0);
}

TEST_CASE("gradcheck does not accept NaN") {
  CHECK(!gradcheck([](const Tensors& x) { return log(x[0]); }, {a}).ok);
}

TEST_CASE("gradgradcheck accepts right second derivatives and finds wrong ones") {
  CHECK(gradgradcheck([](const Tensors& x) { return x[0] * exp(x[1]); }, {a, b}).ok);
  CHECK(gradgradcheck([](const Tensors& x) { return Tensors{tanh(x[0]), x[1] * x[1]}; }, {a, b}).ok);
  CHECK(gradgradcheck([](const Tensors& x) { return 3 * x[0]; }, {a}).ok);
  // The first derivative is right, but its own takes x for a constant.
  const auto square_once = [](const Tensors& x) {
    return record("square_once", (x[0] * x[0]).detach(), {x[0]},
                  [x0 = x[0]](const Tensor& dy) { return Tensors{dy * (2 * x0.detach())}; });
  };
  CHECK(gradcheck(square_once, {b}).ok);
  CHECK(!gradgradcheck(square_once, {b}).ok);
}

TEST_CASE("gradcheck says what it cannot check") {
  const auto f = [](const Tensors& x) { return x[0] * 2; };
  CHECK_THROWS_WITH_AS(gradcheck(f, {arange(3)}), doctest::Contains("none of the 1 inputs is of a float dtype"), Error);
  CHECK_THROWS_WITH_AS(gradcheck(f, {Tensor()}), doctest::Contains("input 0 is undefined"), Error);
  CHECK_THROWS_WITH_AS(gradcheck(f, {a}, {.eps = 0}), doctest::Contains("eps is 0"), Error);
  CHECK_THROWS_WITH_AS(gradcheck([](const Tensors& x) { return x[0].to(f32); }, {a}), doctest::Contains("returned f32"),
                       Error);
  CHECK_THROWS_WITH_AS(gradcheck([](const Tensors& x) { return x[0] > 0; }, {a}),
                       doctest::Contains("no tensor of a float dtype"), Error);
}
