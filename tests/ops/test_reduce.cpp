#include "engine/ops/reduce.h"

#include <algorithm>
#include <limits>

#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "tests/ops/naive.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

using Naive = double (*)(const std::vector<double>&);
double naive_sum(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x;
  return s;
}
double naive_mean(const std::vector<double>& v) { return naive_sum(v) / static_cast<double>(v.size()); }
double naive_prod(const std::vector<double>& v) {
  double p = 1;
  for (double x : v) p *= x;
  return p;
}
double naive_max(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
double naive_min(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }
double naive_squares(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += (x - naive_mean(v)) * (x - naive_mean(v));
  return s;
}
double naive_var(const std::vector<double>& v) { return naive_squares(v) / static_cast<double>(v.size() - 1); }
double naive_stddev(const std::vector<double>& v) { return std::sqrt(naive_var(v)); }
double naive_logsumexp(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += std::exp(x);
  return std::log(s);
}
template <int p>
double naive_norm(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += std::pow(std::abs(x), p);
  return std::pow(s, 1.0 / p);
}

std::vector<double> apply(Naive f, const Tensor& x, const Shape& dims) {
  std::vector<double> out;
  for (const auto& group : groups(x, dims)) out.push_back(f(group));
  return out;
}

struct Case {
  std::string name;
  Tensor (*op)(const Tensor&, const Shape&, bool);
  Naive naive;
};
const Case kCases[] = {
    {"sum", sum, naive_sum},
    {"mean", mean, naive_mean},
    {"prod", prod, naive_prod},
    {"max", max, naive_max},
    {"min", min, naive_min},
    {"logsumexp", logsumexp, naive_logsumexp},
    {"var", [](const Tensor& x, const Shape& d, bool k) { return var(x, d, k); }, naive_var},
    {"stddev", [](const Tensor& x, const Shape& d, bool k) { return stddev(x, d, k); }, naive_stddev},
    {"norm 1", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 1, d, k); }, naive_norm<1>},
    {"norm 2", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 2, d, k); }, naive_norm<2>},
    {"norm 3", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 3, d, k); }, naive_norm<3>},
};

}  // namespace

TEST_CASE("reductions over any dimensions of any layout agree with plain loops") {
  const Tensor x = made_up({3, 5, 2, 4});
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    for (const Shape& dims :
         {Shape{}, Shape{0}, Shape{1}, Shape{-1}, Shape{0, 2}, Shape{1, -1}, Shape{0, 2, 3}, Shape{3, 0}}) {
      CAPTURE(dims.str());
      for (const Tensor& laid : layouts(x)) {
        CAPTURE(laid.strides().str());
        const Tensor y = c.op(laid, dims, true);
        CHECK(y.shape() == reduced_shape(x.shape(), normalize_dims(dims, 4, "test"), true));
        check_close(y, apply(c.naive, x, dims), 1e-13, 1e-14);
        const Tensor squeezed = c.op(laid, dims, false);
        CHECK(squeezed.shape() == reduced_shape(x.shape(), normalize_dims(dims, 4, "test"), false));
        CHECK(squeezed.to_vector<double>() == y.to_vector<double>());
      }
    }
  }
}

TEST_CASE("scalars and single elements reduce to themselves") {
  for (const Tensor& x : {tensor({3}), tensor({3}).reshape({}), tensor({3}).reshape({1, 1, 1})}) {
    CHECK(sum(x).item() == 3);
    CHECK(mean(x).item() == 3);
    CHECK(prod(x).item() == 3);
    CHECK(max(x).item() == 3);
    CHECK(norm(x).item() == 3);
    CHECK(argmax(x).item<std::int64_t>() == 0);
    CHECK(cumsum(x, 0).shape() == x.shape());
    CHECK(sum(x).rank() == 0);
  }
}

TEST_CASE("a broadcast dimension counts every time") {
  const Tensor row = tensor({1, 2, 3});
  CHECK(sum(row.expand({4, 3})).item() == 24);
  CHECK(sum(row.expand({4, 3}), {0}).to_vector<double>() == std::vector<double>{4, 8, 12});
  CHECK(sum(row.expand({4, 3}), {1}).to_vector<double>() == std::vector<double>{6, 6, 6, 6});
  const Tensor column = tensor({{1}, {2}}).expand({2, 5000});
  CHECK(sum(column, {1}).to_vector<double>() == std::vector<double>{5000, 10000});
  CHECK(sum(column, {0}).to_vector<double>() == std::vector<double>(5000, 3));
}

TEST_CASE("the patterns of training, large enough for several tiles and threads, agree with plain loops") {
  // f16 sums: the f32 sum is off by at most (40 + log2 n) 2^-24 times the sum of magnitudes, here below 60 *
  // 2^-24 * n * 2; then one rounding to f16.
  for (DType dtype : {f16, f32, f64})
    for (const Shape& shape :
         {Shape{100003}, Shape{700, 130}, Shape{3, 40000}, Shape{40000, 3}, Shape{5, 7, 30, 31}, Shape{70, 300}}) {
      const Tensor x = made_up(shape, dtype);
      for (const Tensor& laid : layouts(x))
        for (const Shape& dims : {Shape{}, Shape{0}, Shape{-1}, Shape{0, -1}, Shape{-1, 0}}) {
          if (shape.rank() == 1 && dims.size() == 2) continue;
          CAPTURE(std::string(name_of(dtype)));
          CAPTURE(shape.str());
          CAPTURE(laid.strides().str());
          CAPTURE(dims.str());
          const auto all = groups(x, dims);
          const auto n = static_cast<double>(all[0].size());
          const double accumulated = dtype == f64 ? 1e-12 : 60 * std::ldexp(2 * n, -24);
          const std::vector<double> y = sum(laid, dims).to_vector<double>();
          const std::vector<double> most = max(laid, dims).to_vector<double>();
          bool sums_agree = true, maxima_agree = true;
          for (std::size_t i = 0; i < all.size(); ++i) {
            const double expected = naive_sum(all[i]);
            sums_agree &=
                close(y[i], expected, accumulated + (dtype == f16 ? half_ulp(expected) : std::abs(expected) * 1e-7));
            maxima_agree &= most[i] == naive_max(all[i]);
          }
          CHECK(sums_agree);
          CHECK(maxima_agree);
        }
    }
}

TEST_CASE("the error of an f32 sum does not grow with the number of terms") {
  // One after the other, 2^24 + 1 ones stay at 2^24, and the sum of n equal numbers drifts. In blocks and
  // pairs the bound is (40 + log2 n) u: 64 * 2^-24 = 3.8e-6 relative; the tenth is not a float, which the
  // exact value accounts for.
  const std::int64_t n = (1 << 24) + 2;
  CHECK(sum(full({1}, 1).expand({n})).item() == static_cast<double>(n));
  CHECK(sum(full({n}, 1)).item() == static_cast<double>(n));
  const double exact = static_cast<double>(n) * static_cast<double>(0.1f);
  CHECK(std::abs(sum(full({n}, 0.1)).item() / exact - 1) < 3.8e-6);
  CHECK(std::abs(sum(full({n / 2, 2}, 0.1), {0}).to_vector<double>()[1] / (exact / 2) - 1) < 3.8e-6);
}

TEST_CASE("sums have the same bits with any number of threads and on every instruction set") {
  const Tensor x = made_up({300, 1000}, f32);
  const int threads = cpu::num_threads();
  const cpu::Kernels& chosen = cpu::kernels();
  for (const Shape& dims : {Shape{}, Shape{0}, Shape{1}}) {
    const std::vector<double> expected = sum(x, dims).to_vector<double>();
    for (int n : {1, 3, 8}) {
      cpu::set_num_threads(n);
      CHECK(sum(x, dims).to_vector<double>() == expected);
    }
    cpu::set_num_threads(threads);
    for (const char* const* isa = cpu::kIsaNames; *isa; ++isa) {
      const cpu::Kernels* table = cpu::kernels_for(*isa);
      if (!table) continue;
      CAPTURE(std::string(*isa));
      cpu::use_kernels(*table);
      CHECK(sum(x, dims).to_vector<double>() == expected);
      CHECK(max(x.to(f16), dims).to_vector<double>() == apply(naive_max, x.to(f16), dims));
    }
    cpu::use_kernels(chosen);
  }
}

TEST_CASE("f16 sums do not overflow on the way and round once at the end") {
  const Tensor x = full({100}, 60000, f16);
  CHECK(mean(x).item() == 60000);
  CHECK(std::isinf(sum(x).item()));
  CHECK(sum(tensor({65504, 65504, -65504}, f16)).item() == 65504);
  CHECK(sum(full({4096}, 1, f16)).item() == 4096);                                 // plain f16 sums stop at 2048
  CHECK(sum(full({1024}, std::ldexp(1, -24), f16)).item() == std::ldexp(1, -14));  // subnormals count
  CHECK(mean(tensor({1, 1.0009765625}, f16)).item() == 1);                         // a tie goes to even
  CHECK(norm(full({4}, 60000, f16), kInf).item() == 60000);
  CHECK(norm(full({100}, 3000, f16)).item() == 30000);  // the squares do not fit in f16
}

TEST_CASE("integers and bools are summed as i64, extrema keep their type") {
  const Tensor bytes = full({1000}, 255, u8);
  CHECK(sum(bytes).dtype() == i64);
  CHECK(sum(bytes).item<std::int64_t>() == 255000);
  CHECK(max(bytes).dtype() == u8);
  CHECK(max(bytes).item<int>() == 255);
  const Tensor large = from_vector(std::vector<std::int64_t>{INT64_MIN, INT64_MAX, 1});
  CHECK(min(large).item<std::int64_t>() == INT64_MIN);
  CHECK(max(large).item<std::int64_t>() == INT64_MAX);
  CHECK(sum(large).item<std::int64_t>() == 0);
  CHECK(prod(from_vector(std::vector<std::int32_t>{1 << 20, 1 << 20})).item<std::int64_t>() == std::int64_t{1} << 40);
  const Tensor flags = from_vector(std::vector<bool>{true, false, true});
  CHECK(sum(flags).item<std::int64_t>() == 2);
  CHECK(max(flags).dtype() == boolean);
  CHECK_THROWS_WITH_AS(mean(bytes), doctest::Contains("mean: the tensor is u8"), Error);
}

TEST_CASE("integers are counted one by one, whatever is left over behind the vectors") {
  const cpu::Kernels& chosen = cpu::kernels();
  for (const char* const* isa = cpu::kIsaNames; *isa; ++isa) {
    const cpu::Kernels* table = cpu::kernels_for(*isa);
    if (!table) continue;
    cpu::use_kernels(*table);
    for (DType t : {i32, i64, u8, boolean})
      for (std::int64_t n = 1; n <= 300; ++n) {
        CAPTURE(std::string(*isa));
        CAPTURE(n);
        const Tensor x = made_up({n}, f32, t == u8 ? 0 : -90, 200).to(t);
        CHECK(sum(x).item() == naive_sum(x.to_vector<double>()));
        CHECK(max(x).item() == naive_max(x.to_vector<double>()));
        CHECK(min(x).item() == naive_min(x.to_vector<double>()));
      }
  }
  cpu::use_kernels(chosen);
}

TEST_CASE("NaN wins extrema wherever it stands, and infinities are ordinary") {
  for (DType dtype : {f16, f32, f64})
    for (std::int64_t n : {1, 2, 7, 40, 2000})
      for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        std::vector<double> values(static_cast<std::size_t>(n), 3);
        values[static_cast<std::size_t>(at)] = kNaN;
        for (const Shape& shape : {Shape{n}, Shape{n, 1}}) {
          const Tensor x = from_vector(values, shape).to(dtype);
          CHECK(std::isnan(max(x).item()));
          CHECK(std::isnan(min(x, {0}).reshape({}).item()));
          CHECK(argmax(x).item<std::int64_t>() == at);
          CHECK(argmin(x).item<std::int64_t>() == at);
        }
      }
  const Tensor x = tensor({-1, 65504, 2}, f16);
  CHECK(max(x).item() == 65504);
  CHECK(max(from_vector(std::vector<double>{-kInf, -kInf})).item() == -kInf);
  CHECK(min(from_vector(std::vector<double>{kInf, kInf})).item() == kInf);
  CHECK(sum(from_vector(std::vector<double>{kInf, 1})).item() == kInf);
  CHECK(std::isnan(sum(from_vector(std::vector<double>{kInf, -kInf})).item()));
}

TEST_CASE("reductions of nothing") {
  const Tensor x = zeros({0, 3});
  CHECK(sum(x).item() == 0);
  CHECK(sum(x, {0}).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(sum(x, {1}).shape() == Shape{0});
  CHECK(prod(x, {0}).to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK(std::isnan(mean(x).item()));
  CHECK(std::isnan(var(x).item()));
  CHECK(norm(x).item() == 0);
  CHECK(logsumexp(x).item() == -kInf);
  CHECK_FALSE(any(x).item<bool>());
  CHECK(all(x).item<bool>());
  CHECK(cumsum(x, 0).shape() == Shape{0, 3});
  CHECK(max(x, {1}).shape() == Shape{0});
  CHECK_THROWS_WITH_AS(max(x), doctest::Contains("nothing to reduce"), Error);
  CHECK_THROWS_WITH_AS(min(x, {0}), doctest::Contains("nothing to reduce"), Error);
  CHECK_THROWS_WITH_AS(argmax(x, 0), doctest::Contains("dimension 0 of shape [0, 3] is empty"), Error);
  CHECK_THROWS_AS(argmin(x), Error);
  Tensor leaf = zeros({0, 3}, f64).requires_grad_();
  sum(leaf).backward();
  CHECK(leaf.grad().shape() == Shape{0, 3});
}

TEST_CASE("bad arguments are errors") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(sum(x, {2}), doctest::Contains("sum: dimension 2 is out of range"), Error);
  CHECK_THROWS_WITH_AS(sum(x, {0, -2}), doctest::Contains("named twice"), Error);
  CHECK_THROWS_AS(sum(Tensor()), Error);
  CHECK_THROWS_AS(argmax(Tensor()), Error);
  CHECK_THROWS_AS(cumsum(x, 5), Error);
  CHECK_THROWS_AS(norm(x, kNaN), Error);
  CHECK_THROWS_AS(var(zeros({2}, i64)), Error);
}

TEST_CASE("var and stddev take a correction; a single number has no unbiased variance") {
  const Tensor x = tensor({1, 2, 3, 4}, f64);
  CHECK(var(x).item() == doctest::Approx(5.0 / 3));
  CHECK(var(x, {}, false, 0).item() == doctest::Approx(1.25));
  CHECK(std::isnan(var(tensor({5})).item()));
  CHECK(var(tensor({5}), {}, false, 0).item() == 0);
  // A mean of 1000 and a deviation near 1 in f16: the squares are taken of distances, in f32. Exact values
  // are multiples of 0.5; var has relative error below 1e-5 before the rounding to f16 (2^-11).
  const Tensor shifted = made_up({5000}, f64, 998, 1002).to(f16);
  CHECK(std::abs(var(shifted).item() / naive_var(shifted.to_vector<double>()) - 1) < 1e-5 + std::ldexp(1, -11));
}

TEST_CASE("norms of special orders") {
  const Tensor x = tensor({3, -4, 0}, f64);
  CHECK(norm(x).item() == 5);
  CHECK(norm(x, kInf).item() == 4);
  CHECK(norm(x, -kInf).item() == 0);
  CHECK(norm(x, 0).item() == 2);
  CHECK(norm(x, 0.5).item() == doctest::Approx(std::pow(std::sqrt(3.0) + 2, 2)));
  CHECK(norm(x, -1).item() == 0);
  CHECK(norm(tensor({2, 2}, f64), -1).item() == 1);
}

TEST_CASE("logsumexp does not overflow and knows infinities") {
  CHECK(logsumexp(tensor({1000, 1000}, f64)).item() == doctest::Approx(1000 + std::log(2.0)));
  CHECK(logsumexp(tensor({-1000, -1000}, f16)).item() == -999.5);  // -999.307 rounded to halves
  CHECK(logsumexp(full({3}, -kInf)).item() == -kInf);
  CHECK(logsumexp(tensor({kInf, 0})).item() == kInf);
  CHECK(logsumexp(tensor({-kInf, 0})).item() == 0);
  CHECK(std::isnan(logsumexp(tensor({kNaN, 0})).item()));
  Tensor x = full({3}, -kInf, f64).requires_grad_();
  logsumexp(x).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0, 0});
}

TEST_CASE("positions of extrema: the first of equals, along any dimension") {
  const Tensor x = tensor({{1, 5, 5}, {7, 0, 7}});
  for (const Tensor& laid : layouts(x)) {
    CHECK(argmax(laid, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
    CHECK(argmin(laid, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1});
    CHECK(argmax(laid, 0).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0, 1});
    CHECK(argmax(laid, -2, true).shape() == Shape{1, 3});
    CHECK(argmax(laid).item<std::int64_t>() == 3);
    CHECK(argmax(laid).dtype() == i64);
  }
}

TEST_CASE("running sums along any dimension") {
  const Tensor x = made_up({4, 3, 5});
  for (std::int64_t dim : {0, 1, -1})
    for (const Tensor& laid : layouts(x)) {
      const Tensor y = cumsum(laid, dim);
      const std::int64_t n = x.size(dim);
      for (std::int64_t i = 0; i < n; ++i)
        check_close(y.select(dim, i), sum(x.narrow(dim, 0, i + 1), {dim}).to_vector<double>(), 1e-13, 1e-14);
    }
  CHECK(cumsum(full({3}, 200, u8), 0).to_vector<std::int64_t>() == std::vector<std::int64_t>{200, 400, 600});
  // f16: summed in double and each sum rounded once
  const Tensor h = made_up({3000}, f16, 0, 1);
  double running = 0;
  const std::vector<double> values = h.to_vector<double>(), sums = cumsum(h, 0).to_vector<double>();
  bool agree = true;
  for (std::size_t i = 0; i < values.size(); ++i)
    agree &= sums[i] == static_cast<double>(float(half(running += values[i])));
  CHECK(agree);
}

TEST_CASE("any and all look at every type") {
  CHECK(any(tensor({0, 0, 1})).item<bool>());
  CHECK_FALSE(any(zeros({100})).item<bool>());
  CHECK(any(tensor({0, kNaN})).item<bool>());
  CHECK(any(full({3}, std::ldexp(1, -24), f16)).item<bool>());
  CHECK(all(ones({1000}, f16)).item<bool>());
  CHECK_FALSE(all(tensor({{1, 0}, {1, 1}}, i32)).item<bool>());
  CHECK(all(tensor({{1, 0}, {1, 1}}, i32), {1}).to_vector<bool>() == std::vector<bool>{false, true});
  CHECK(any(zeros({2}, u8)).dtype() == boolean);
}

TEST_CASE("gradients of reductions agree with finite differences, twice") {
  for (const Case& c : kCases)
    for (const Shape& dims : {Shape{}, Shape{1}, Shape{0, -1}})
      for (bool keepdim : {false, true}) {
        CAPTURE(c.name);
        CAPTURE(dims.str());
        const auto f = [&](const Tensors& x) { return c.op(x[0], dims, keepdim); };
        for (const Tensor& x : layouts(made_up({2, 3, 2}, f64, 0.5, 2))) check_gradient(f, {x});
        check_second_gradient(f, {made_up({2, 3, 2}, f64, 0.5, 2)}, 1e-5);
      }
  check_gradient([](const Tensors& x) { return cumsum(x[0], 1); }, {made_up({2, 4})});
  check_gradient([](const Tensors& x) { return norm(x[0], kInf, {1}); }, {made_up({2, 4})});
}

TEST_CASE("the gradient of prod is right with zeros") {
  for (const std::vector<double>& values :
       {std::vector<double>{2, 0, 3, 4, 5}, {0, 2, 0, 3, 1}, {0, 0, 0, 1, 1}, {0, 1, 2, 3, 4}}) {
    const Tensor x = from_vector(values, {1, 5}).expand({2, 5}).clone();
    const auto f = [](const Tensors& v) { return prod(v[0], {1}); };
    check_gradient(f, {x});
    check_second_gradient(f, {x});
  }
  Tensor x = tensor({0, 60000, 1}, f16).requires_grad_();
  prod(x).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{60000, 0, 0});
}

TEST_CASE("equal extrema share the gradient, and it goes to NaN where that won") {
  Tensor x = tensor({{1, 3, 3}, {2, 2, 2}}, f64).requires_grad_();
  sum(max(x, {1})).backward();
  check_close(x.grad(), {0, 0.5, 0.5, 1.0 / 3, 1.0 / 3, 1.0 / 3}, 1e-15);
  Tensor broken = tensor({1, kNaN, 2}, f64).requires_grad_();
  max(broken).backward();
  CHECK(broken.grad().to_vector<double>() == std::vector<double>{0, 1, 0});
  // more ties than the largest f16
  Tensor flat = ones({70000}, f16).requires_grad_();
  max(flat).backward(full({}, 65504, f16));
  CHECK(flat.grad().to_vector<double>()[0] == static_cast<double>(float(half(65504.0 / 70000))));
}

TEST_CASE("gradients of norm and stddev are 0, not NaN, where x is") {
  for (double p : {0.5, 1.0, 2.0, 3.0}) {
    Tensor x = zeros({3}, f64).requires_grad_();
    norm(x, p).backward();
    CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0, 0});
  }
  Tensor x = full({3}, 2, f64).requires_grad_();
  stddev(x).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0, 0});
}

TEST_CASE("gradients keep the dtype of the input") {
  Tensor x = made_up({4, 4}, f16).requires_grad_();
  (sum(x) + mean(x) + sum(var(x, {0})) + norm(x) + sum(logsumexp(x, {1})) + sum(max(x, {0})) + prod(x)).backward();
  CHECK(x.grad().dtype() == f16);
}
