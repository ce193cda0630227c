#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "engine/ops/elementwise.h"
#include "engine/random.h"
#include "engine/tensor.h"

using namespace halfgrad;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& x) { return x.to_vector<double>(); }
constexpr DType kAllDTypes[] = {f16, f32, f64, i32, i64, u8, boolean};
}  // namespace

// --- factories -------------------------------------------------------------------------------------------------------

TEST_CASE("factories fill every dtype") {
  for (DType t : kAllDTypes) {
    CHECK(values(zeros({2, 2}, t)) == Values{0, 0, 0, 0});
    CHECK(values(ones({3}, t)) == Values{1, 1, 1});
    CHECK(values(full({2}, 7, t)) == (t == boolean ? Values{1, 1} : Values{7, 7}));
    CHECK(zeros({0, 3}, t).numel() == 0);
    CHECK(zeros({}, t).shape() == Shape{});
    CHECK(zeros_like(ones({2, 3}, t)).dtype() == t);
  }
}

TEST_CASE("arange, linspace and eye give what NumPy gives") {
  CHECK(values(arange(1, 2, 0.25)) == Values{1, 1.25, 1.5, 1.75});
  CHECK(values(arange(5, 0, -2)) == Values{5, 3, 1});
  CHECK(arange(3, 0).numel() == 0);
  CHECK(values(arange(4)) == Values{0, 1, 2, 3});
  CHECK(arange(4).dtype() == i64);
  CHECK(values(linspace(0, 1, 3)) == Values{0, 0.5, 1});
  CHECK(values(linspace(2, 9, 1)) == Values{2});
  CHECK(linspace(-1, 0.1, 7, f64).to_vector<double>().back() == 0.1);
  CHECK(values(eye(2, 3)) == Values{1, 0, 0, 0, 1, 0});
  CHECK_THROWS_AS(arange(0, 1, 0), Error);
  CHECK_THROWS_AS(linspace(0, 1, -1), Error);
}

TEST_CASE("tensors come from vectors and nested lists") {
  CHECK(values(from_vector<float>({1, 2, 3, 4}, {2, 2})[1]) == Values{3, 4});
  CHECK(from_vector<bool>({true, false}).dtype() == boolean);
  CHECK(from_vector<half>({half(1.5)}).dtype() == f16);
  const Tensor x = tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}, i32);
  CHECK(x.shape() == Shape{2, 2, 2});
  CHECK(values(x) == Values{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK_THROWS_WITH_AS(tensor({{1, 2}, {3}}), doctest::Contains("not rectangular"), Error);
  CHECK_THROWS_AS(tensor({{1, 2}, 3}), Error);
  CHECK_THROWS_WITH_AS(from_vector<float>({1, 2, 3}, {2, 2}), doctest::Contains("3 values do not fill"), Error);
}

TEST_CASE("a shape that is negative or larger than memory is an error") {
  CHECK_THROWS_AS(empty({-1}), Error);
  CHECK_THROWS_WITH_AS(empty({1LL << 40, 1LL << 40}), doctest::Contains("more memory than there is"), Error);
  CHECK_THROWS_AS(empty({1LL << 62, 4}), Error);
  CHECK_THROWS_WITH_AS(empty({1LL << 50}, u8), doctest::Contains("out of memory"), Error);
}

TEST_CASE("random fills follow the seed") {
  manual_seed(3);
  const Tensor a = randn({1000});
  manual_seed(3);
  CHECK(values(a) == values(randn({1000})));
  CHECK(values(a) != values(randn({1000})));
  for (double v : values(rand({1000}, f16))) CHECK((v >= 0 && v < 1));
  for (double v : values(randint(-2, 3, {100}))) CHECK((v >= -2 && v < 3 && v == std::floor(v)));
  CHECK_THROWS_AS(randint(3, 3, {1}), Error);
  CHECK_THROWS_AS(zeros({2}, i32).normal_(), Error);
}

// --- values ----------------------------------------------------------------------------------------------------------

TEST_CASE("item converts the only element") {
  CHECK(tensor({2.5}).item() == 2.5);
  CHECK(tensor({2.5}).item<int>() == 2);
  CHECK(from_vector<std::int64_t>({(1LL << 53) + 1}).item<std::int64_t>() == (1LL << 53) + 1);
  CHECK(Tensor(3).item<float>() == 3.0F);
  CHECK_THROWS_WITH_AS(tensor({1, 2}).item(), doctest::Contains("exactly one element"), Error);
}

TEST_CASE("data is typed, and an undefined tensor says so") {
  CHECK(tensor({1.5}).data<float>()[0] == 1.5F);
  CHECK_THROWS_WITH_AS(tensor({1.5}).data<double>(), doctest::Contains("asked for as f64"), Error);
  CHECK_THROWS_WITH_AS(Tensor().shape(), doctest::Contains("undefined"), Error);
  CHECK_THROWS_AS(add(Tensor(), ones({1})), Error);
}

TEST_CASE("every pair of dtypes converts with one rounding") {
  const double inf = std::numeric_limits<double>::infinity();
  // f64 -> f16 by way of f32 would give 1 + 2^-10: the f32 lies exactly between two halves.
  const double tricky = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -30);
  CHECK(full({}, tricky, f64).to(f16).item() == 1 + std::ldexp(1.0, -10));
  const double below = 1 + std::ldexp(1.0, -11) - std::ldexp(1.0, -30);
  CHECK(full({}, below, f64).to(f16).item() == 1);
  CHECK(full({}, 65519.99, f64).to(f16).item() == 65504);
  CHECK(full({}, 65520, f64).to(f16).item() == inf);
  CHECK(full({}, 1e-8, f64).to(f16).item() == 0);
  // Floats become integers by truncation, saturating; NaN becomes 0.
  CHECK(values(tensor({-1.9, 1.9, 300, -5}).to(u8)) == Values{0, 1, 255, 0});
  CHECK(values(tensor({1e10, -1e10}).to(i32)) == Values{2147483647, -2147483648.0});
  CHECK(full({}, std::nan(""), f32).to(i64).item() == 0);
  CHECK(full({}, inf, f32).to(i64).item<std::int64_t>() == INT64_MAX);
  CHECK(values(tensor({0, -2, 0.25}).to(boolean)) == Values{0, 1, 1});
  CHECK(full({}, std::nan(""), f32).to(boolean).item() == 1);
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      const Tensor x = tensor({0, 1, 1, 0}, from);
      CHECK(values(x.to(to)) == Values{0, 1, 1, 0});
    }
  CHECK(tensor({1}).to(f32).dtype() == f32);
  const Tensor same = ones({2});
  CHECK(same.to(f32).is_same(same));
}

TEST_CASE("printing is readable, aligned and shortened") {
  CHECK(tensor({{1, 20}, {3, 4}}, i32).str() == "[[ 1, 20],\n [ 3,  4]]  i32 [2, 2]");
  CHECK(tensor({0.5, -1}, f16).str() == "[0.5,  -1]  f16 [2]");
  CHECK(tensor({1, 0}, boolean).str() == "[ true, false]  bool [2]");
  CHECK(Tensor(2.0).str() == "2  f64 []");
  CHECK(zeros({0}).str() == "[]  f32 [0]");
  CHECK(zeros({2, 0}).str() == "[[],\n []]  f32 [2, 0]");
  CHECK(Tensor().str() == "Tensor(undefined)");
  CHECK(arange(2000).str() == "[   0,    1,    2, ..., 1997, 1998, 1999]  i64 [2000]");
  CHECK(full({1}, std::numeric_limits<double>::infinity()).str() == "[inf]  f32 [1]");
  std::ostringstream out;
  out << ones({1}).requires_grad_();
  CHECK(out.str() == "[1]  f32 [1] requires_grad");
}

// --- in place --------------------------------------------------------------------------------------------------------

TEST_CASE("in-place ops change the shared memory and bump the version") {
  Tensor x = tensor({1, 2, 3});
  const Tensor view = x.slice(0, 1);
  const auto before = x.version();
  x.add_(tensor({10, 20, 30}), 0.5).mul_(2).sub_(1).div_(tensor({1, 1, 2}));
  CHECK(values(x) == Values{11, 23, 17.5});
  CHECK(values(view) == Values{23, 17.5});
  CHECK(x.version() > before);
  x.clamp_(12, 20);
  CHECK(values(x) == Values{12, 20, 17.5});
  x.copy_(tensor({5}));
  CHECK(values(x) == Values{5, 5, 5});
}

TEST_CASE("in-place ops round once and refuse what does not fit") {
  Tensor h = tensor({2048}, f16);
  h.add_(tensor({1.5}));  // 2049.5 in f32 rounds to 2050 in f16; 1.5 added after rounding would not
  CHECK(h.item() == 2050);
  Tensor product = tensor({1}, f16);
  product.add_(tensor({0.333}, f16), 0.333);
  const float expected = 1 + static_cast<float>(half(0.333)) * 0.333F;
  CHECK(product.item<float>() == static_cast<float>(half(expected)));
  Tensor n = tensor({4}, i32);
  CHECK(n.mul_(3).item<int>() == 12);
  CHECK_THROWS_WITH_AS(n.mul_(0.5), doctest::Contains("mul_: the result is a fraction"), Error);
  CHECK_THROWS_AS(n.div_(2), Error);
  CHECK_THROWS_WITH_AS(ones({2}).add_(ones({3, 2})), doctest::Contains("add_"), Error);
  CHECK_THROWS_WITH_AS(ones({2}).copy_(ones({3})), doctest::Contains("copy_"), Error);
}

TEST_CASE("overlapping operands of an in-place op are read before they are written") {
  Tensor x = arange(0, 5);
  x.slice(0, 1).add_(x.slice(0, 0, -1));  // NumPy: 0, 1, 3, 5, 7
  CHECK(values(x) == Values{0, 1, 3, 5, 7});
  Tensor m = tensor({{1, 2}, {3, 4}});
  m.copy_(m.t());
  CHECK(values(m) == Values{1, 3, 2, 4});
  m.mul_(m);
  CHECK(values(m) == Values{1, 9, 4, 16});
}

TEST_CASE("set_data is seen by every handle") {
  Tensor w = ones({2}).requires_grad_();
  const Tensor handle = w;
  w.set_grad(ones({2}));
  w.set_data(tensor({3, 4}, f16));
  CHECK(handle.dtype() == f16);
  CHECK(values(handle) == Values{3, 4});
  CHECK(!handle.grad().defined());
  CHECK(handle.requires_grad());
  CHECK_THROWS_AS(w.set_data(tensor({1}, i32)), Error);
}

// --- mixing dtypes ---------------------------------------------------------------------------------------------------

TEST_CASE("dtypes mix as in PyTorch") {
  const auto sum = [](const Tensor& a, const Tensor& b) { return (a + b).dtype(); };
  CHECK(sum(ones({2}, f16), ones({2}, f32)) == f32);
  CHECK(sum(ones({2}, f32), ones({2}, f64)) == f64);
  CHECK(sum(ones({2}, i64), ones({2}, f16)) == f16);
  CHECK(sum(ones({2}, u8), ones({2}, i32)) == i32);
  CHECK(sum(ones({2}, boolean), ones({2}, u8)) == u8);
  // numbers never widen within their kind
  CHECK(sum(ones({2}, f16), 2.5) == f16);
  CHECK(sum(ones({2}, i32), 2) == i32);
  CHECK(sum(ones({2}, i32), 0.5) == f32);
  CHECK(sum(ones({2}, f16), full({}, 3, f32)) == f16);  // nor do rank-0 tensors
  CHECK(sum(ones({}, f16), full({}, 3, f32)) == f32);
  CHECK(sum(ones({}, f32), 2.5) == f32);
  CHECK((ones({2}, i32) / 2).dtype() == f32);
  CHECK((ones({2}, i32) < 2.5).dtype() == boolean);
  CHECK(sqrt(ones({2}, i64)).dtype() == f32);
  // a number is not squeezed through f16 on the way
  CHECK((full({1}, 0.5, f16) * 100000).item() == 49984);
}

TEST_CASE("f16 arithmetic is done in f32 and rounded once") {
  const Tensor x = tensor({300}, f16);
  CHECK(sqrt(x * x).item() == std::numeric_limits<double>::infinity());  // 90000 overflows between two ops
  CHECK((x * 1.1).item<float>() == static_cast<float>(half(300 * 1.1F)));
}

// --- layout ----------------------------------------------------------------------------------------------------------

TEST_CASE("elementwise ops keep the memory order that they find") {
  const Tensor x = randn({2, 3, 4, 5}).channels_last();
  CHECK(x.is_channels_last());
  CHECK(!x.is_contiguous());
  CHECK(relu(x).is_channels_last());
  CHECK((x + 1).is_channels_last());
  CHECK((x * x.contiguous()).is_channels_last());
  CHECK((x + randn({1, 3, 1, 1})).is_channels_last());
  CHECK(x.to(f16).is_channels_last());
  CHECK(x.clone().is_channels_last());
  CHECK(values(x.contiguous()) == values(x));
  CHECK(values(x + x.contiguous()) == values(x * 2));
}

TEST_CASE("devices that are not there are clear errors") {
  CHECK(parse_device("cpu") == Device::cpu());
  CHECK(parse_device("cuda:1") == Device::cuda(1));
  CHECK_THROWS_WITH_AS(parse_device("gpu"), doctest::Contains("'gpu' is none; expected cpu"), Error);
  CHECK_THROWS_AS(parse_device("cuda:"), Error);
  CHECK_THROWS_AS(parse_device("cuda:x"), Error);
}
