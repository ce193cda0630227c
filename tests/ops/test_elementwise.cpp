// What the registry does not ask of elementwise ops: numbers as operands, operators, dtype rules in words,
// in-place ops.

#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"

using namespace halfgrad;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& x) { return x.to_vector<double>(); }
}  // namespace

TEST_CASE("a number takes the dtype of the tensor beside it") {
  for (DType t : {f16, f32, f64}) {
    const Tensor x = tensor({1, 2, 3}, t);
    for (const Tensor& y : {x + 1, 2 * x, x / 2.5, 1.5 - x, pow(x, 2), maximum(x, 0), x + half(1.0f), x * true})
      CHECK(y.dtype() == t);
  }
  const Tensor n = tensor({1, 2, 3}, i32);
  CHECK((n + 1).dtype() == i32);
  CHECK((n * 2.5).dtype() == f32);
  CHECK((tensor({1, 0}, boolean) + 1).dtype() == i64);
  CHECK(values(n * 2.5) == Values{2.5, 5, 7.5});
}

TEST_CASE("a number is not rounded to f16 before it is used") {
  // 2049 is no half: rounded to 2048 first, the sum would be 0.
  CHECK(values(tensor({-2048}, f16) + 2049) == Values{1});
}

TEST_CASE("the dtypes of mixed operands") {
  const auto result = [](DType a, DType b) { return (ones({2}, a) + ones({2}, b)).dtype(); };
  CHECK(result(f16, f32) == f32);
  CHECK(result(f16, f64) == f64);
  CHECK(result(f16, i64) == f16);
  CHECK(result(u8, i32) == i32);
  CHECK(result(boolean, u8) == u8);
  CHECK((ones({2}, f16) + full({}, 1, f32)).dtype() == f16);  // a rank-0 tensor widens nothing of its kind
  CHECK((ones({2}, i64) + full({}, 1, f16)).dtype() == f16);
  CHECK((full({}, 1, f16) + full({}, 1, f32)).dtype() == f32);
}

TEST_CASE("integers become f32 where the result is a fraction") {
  const Tensor n = tensor({1, 4, 9}, i64);
  CHECK(values(sqrt(n)) == Values{1, 2, 3});
  CHECK(sqrt(n).dtype() == f32);
  CHECK((n / n).dtype() == f32);
  CHECK((n * n).dtype() == i64);
}

TEST_CASE("operators are the ops of their name") {
  const Tensor a = tensor({1, 2, 3}), b = tensor({3, 2, 1});
  CHECK(values(a + b) == values(add(a, b)));
  CHECK(values(a - b) == values(sub(a, b)));
  CHECK(values(a * b) == values(mul(a, b)));
  CHECK(values(a / b) == values(div(a, b)));
  CHECK(values(-a) == values(neg(a)));
  CHECK(values(a == b) == Values{0, 1, 0});
  CHECK(values(a != b) == Values{1, 0, 1});
  CHECK(values(a < b) == Values{1, 0, 0});
  CHECK(values(a <= b) == Values{1, 1, 0});
  CHECK(values(a > b) == Values{0, 0, 1});
  CHECK(values(a >= b) == Values{0, 1, 1});
  CHECK(values(!(a > b)) == Values{1, 1, 0});
  CHECK((a < b).dtype() == boolean);
}

TEST_CASE("f16 is computed in f32 and rounded once") {
  // The product 66000 is above the range of f16, but not the result: one op has one rounding, two ops have
  // two.
  const Tensor x = tensor({300}, f16);
  CHECK(std::isinf((x * 220).item()));
  CHECK(values(tensor({65504}, f16) + 15) == Values{65504});
  CHECK(std::isinf((tensor({65504}, f16) + 16).item()));   // 65520 is midway between 65504 and 65536, which is no half
  CHECK(values(tensor({1}, f16) + 0x1p-11) == Values{1});  // a tie goes to even
  CHECK(values(tensor({1}, f16) + 0x1.8p-11) == Values{1 + 0x1p-10});
  CHECK(values(tensor({0x1p-24}, f16) / 2) == Values{0});
  CHECK(values(sigmoid(tensor({-12, 12}, f16))) == Values{103 * 0x1p-24, 1});
}

TEST_CASE("in-place ops round once and broadcast into the tensor") {
  Tensor x = tensor({{1, 2}, {3, 4}}, f16);
  x.add_(tensor({10, 20}), 0.5).mul_(2).sub_(1).div_(tensor({1, 2}, f16));
  CHECK(x.dtype() == f16);
  CHECK(values(x) == Values{11, 11.5, 15, 13.5});
  CHECK_THROWS_WITH_AS(x.add_(ones({3, 2, 2})), doctest::Contains("add_"), Error);
  CHECK_THROWS_WITH_AS(tensor({1, 2}, i64).div_(2), doctest::Contains("div_"), Error);
  CHECK_THROWS_WITH_AS(tensor({1, 2}, i64).add_(0.5), doctest::Contains("fraction"), Error);
  CHECK_THROWS_WITH_AS(x.add_(Tensor()), doctest::Contains("undefined"), Error);
}

TEST_CASE("an in-place op on overlapping views of one tensor reads it as it was before") {
  Tensor x = arange(0.0, 6.0);
  x.slice(0, 1).add_(x.slice(0, 0, 5));
  CHECK(values(x) == Values{0, 1, 3, 5, 7, 9});
  Tensor square = tensor({{1, 2}, {3, 4}});
  square.add_(square.t());
  CHECK(values(square) == Values{2, 5, 5, 8});
}

TEST_CASE("results keep channels-last memory") {
  const Tensor x = ones({2, 3, 4, 5}).channels_last();
  CHECK(relu(x).is_channels_last());
  CHECK((x * 2 + ones({2, 3, 4, 5})).is_channels_last());
  CHECK((ones({3, 1, 1}) * x).is_channels_last());
}

TEST_CASE("higher derivatives") {
  Tensor x = tensor({0.5, 2}, f64).requires_grad_();
  Tensor d = square(x) * x;  // x^3
  for (int n = 1; n <= 3; ++n) d = grad(d, {x}, ones({2}, f64), false, /*create_graph=*/true)[0];
  CHECK(values(d) == Values{6, 6});
}
