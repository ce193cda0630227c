#include "engine/ops/norm.h"

#include <limits>

#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "tests/ops/naive.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

const Tensor kNone;

// The dimensions of x that batch_norm averages over.
Shape all_but_channels(const Tensor& x) {
  Shape dims = {0};
  for (std::int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

struct Statistics {
  double mean, var;  // biased
  explicit Statistics(const std::vector<double>& v) : mean(0), var(0) {
    for (double x : v) mean += x;
    mean /= static_cast<double>(v.size());
    for (double x : v) var += (x - mean) * (x - mean);
    var /= static_cast<double>(v.size());
  }
};

std::vector<Statistics> channel_statistics(const Tensor& x) {
  std::vector<Statistics> all;
  for (const auto& group : groups(x, all_but_channels(x))) all.emplace_back(group);
  return all;
}

// (x - mean) / sqrt(var + eps) * weight + bias by plain loops in f64.
std::vector<double> naive_batch_norm(const Tensor& x, const std::vector<Statistics>& statistics,
                                     const std::vector<double>& weight, const std::vector<double>& bias, double eps) {
  std::vector<double> y = x.to_vector<double>();
  const auto positions = static_cast<std::size_t>(x.numel() / (x.size(0) * x.size(1)));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t c = i / positions % statistics.size();
    y[i] = (y[i] - statistics[c].mean) / std::sqrt(statistics[c].var + eps) * weight[c] + bias[c];
  }
  return y;
}

// Layers used by the gradient checks: {x, weight, bias}.
Tensor train(const Tensors& t) { return batch_norm(t[0], t[1], t[2], kNone, kNone, true); }
Tensor evaluate(const Tensors& t) {
  return batch_norm(t[0], t[1], t[2], tensor({0.5, -0.5, 1}, f64), tensor({1, 2, 0.5}, f64), false);
}

}  // namespace

TEST_CASE("batch_norm of any layout agrees with plain loops") {
  // f32 and f16 (u = 2^-24): mean and deviation come from sums of at most 1024 terms in f32, joined in f64,
  // and are rounded to f32. |x - mean| has an error of 2 u |mean| and is rounded; scale, product and sum add
  // 5 u. With |x| <= 2, outputs below 4 and the relative error of the squares below 70 u this stays under 300
  // u = 1.8e-5; f16 adds half an ulp.
  for (DType dtype : {f16, f32, f64})
    for (const Shape& shape : {Shape{5, 3}, Shape{4, 3, 7}, Shape{2, 5, 3, 4}, Shape{16, 20, 14, 14},
                               Shape{3, 300, 2, 5}, Shape{1000, 40}, Shape{2, 1, 50, 60}, Shape{2, 3, 2, 2, 2}}) {
      const Tensor x = made_up(shape, dtype);
      const Tensor weight = made_up({shape[1]}, f32, 0.5, 1.5, 2), bias = made_up({shape[1]}, f32, -1, 1, 3);
      const std::vector<Statistics> statistics = channel_statistics(x);
      const auto expected = naive_batch_norm(x, statistics, weight.to_vector<double>(), bias.to_vector<double>(), 1e-5);
      for (const Tensor& laid : layouts(x)) {
        CAPTURE(std::string(name_of(dtype)));
        CAPTURE(shape.str());
        CAPTURE(laid.strides().str());
        Tensor running_mean = zeros({shape[1]}), running_var = ones({shape[1]});
        const Tensor y = batch_norm(laid, weight, bias, running_mean, running_var, true, 0.1);
        CHECK(y.dtype() == dtype);
        const std::vector<double> values = y.to_vector<double>();
        bool agree = true;
        for (std::size_t i = 0; i < values.size(); ++i)
          agree &=
              close(values[i], expected[i], dtype == f64 ? 1e-12 : 1.8e-5 + (dtype == f16 ? half_ulp(expected[i]) : 0));
        CHECK(agree);
        std::vector<double> means, variances;
        const double n = static_cast<double>(x.numel() / shape[1]);
        for (const Statistics& s : statistics) {
          means.push_back(0.1 * s.mean);
          variances.push_back(0.9 + 0.1 * s.var * n / (n - 1));
        }
        check_close(running_mean, means, 1e-5, 1e-6);
        check_close(running_var, variances, 1e-5);

        const Tensor again = batch_norm(laid, weight, bias, running_mean, running_var, false);
        std::vector<Statistics> running = statistics;
        for (std::size_t c = 0; c < running.size(); ++c)
          running[c].mean = running_mean.to_vector<double>()[c], running[c].var = running_var.to_vector<double>()[c];
        const auto in_evaluation =
            naive_batch_norm(x, running, weight.to_vector<double>(), bias.to_vector<double>(), 1e-5);
        const std::vector<double> evaluated = again.to_vector<double>();
        agree = true;
        for (std::size_t i = 0; i < evaluated.size(); ++i)
          agree &= close(evaluated[i], in_evaluation[i],
                         (dtype == f64 ? 1e-12 : 1e-5) + (dtype == f16 ? half_ulp(in_evaluation[i]) : 0));
        CHECK(agree);
      }
    }
}

TEST_CASE("batch_norm of f16 numbers with mean 1000 and deviation 1 keeps all their digits") {
  // Near 1000 an f16 is a multiple of 0.5, so the numbers are exact and so are sums of 32 of them. The mean
  // in f32 is off by 2^-15 at most, which moves y by that over the deviation: 3e-5; then one rounding to f16.
  // A variance from E[x^2] - mean^2 in f32 would be wrong in the first digit.
  for (const Shape& shape : {Shape{64, 3, 12, 12}, Shape{5000, 2}}) {
    const Tensor x = made_up(shape, f64, 998, 1002, 4).to(f16);
    const std::vector<Statistics> statistics = channel_statistics(x);
    const std::vector<double> one(statistics.size(), 1), zero(statistics.size(), 0);
    const auto expected = naive_batch_norm(x, statistics, one, zero, 1e-5);
    for (const Tensor& laid : layouts(x)) {
      Tensor running_mean = zeros({shape[1]}), running_var = zeros({shape[1]});
      const std::vector<double> y = batch_norm(laid, {}, {}, running_mean, running_var, true, 1).to_vector<double>();
      bool agree = true;
      for (std::size_t i = 0; i < y.size(); ++i) agree &= close(y[i], expected[i], 4e-5 + half_ulp(expected[i]));
      CHECK(agree);
      const double n = static_cast<double>(x.numel() / shape[1]);
      for (std::size_t c = 0; c < statistics.size(); ++c) {
        CHECK(std::abs(running_mean.to_vector<double>()[c] - statistics[c].mean) <= std::ldexp(1, -14));
        CHECK(running_var.to_vector<double>()[c] == doctest::Approx(statistics[c].var * n / (n - 1)).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("batch_norm is not misled by a part of the batch that is different") {
  // All blank but one image: the mean of the first tile is no guide to the whole.
  Tensor x = zeros({64, 2, 10, 10});
  x.select(0, 63).copy_(made_up({2, 10, 10}, f32, 999, 1001));
  for (const Tensor& laid : layouts(x)) {
    Tensor running_mean = zeros({2}), running_var = zeros({2});
    batch_norm(laid, {}, {}, running_mean, running_var, true, 1);
    for (std::size_t c = 0; c < 2; ++c) {
      const Statistics s = channel_statistics(x)[c];
      CHECK(running_mean.to_vector<double>()[c] == doctest::Approx(s.mean).epsilon(1e-6));
      CHECK(running_var.to_vector<double>()[c] == doctest::Approx(s.var * 6400 / 6399).epsilon(1e-6));
    }
  }
}

TEST_CASE("batch_norm handles the extremes of f16") {
  const Tensor large = tensor({{65504}, {-65504}, {65504}, {-65504}}, f16);
  CHECK(batch_norm(large, {}, {}, {}, {}, true).to_vector<double>() == std::vector<double>{1, -1, 1, -1});
  // Subnormals are numbers: mean 1.5 * 2^-24; eps = 1e-16 is about the square of that.
  const double tiny = std::ldexp(1, -24);
  const Tensor small = from_vector(std::vector<double>{tiny, 2 * tiny}, {2, 1}).to(f16);
  const double expected = 0.5 * tiny / std::sqrt(0.25 * tiny * tiny + 1e-16);
  check_close(batch_norm(small, {}, {}, {}, {}, true, 0.1, 1e-16), {-expected, expected}, std::ldexp(1, -10));
  // A constant channel has deviation 0: eps alone divides.
  CHECK(batch_norm(full({4, 2}, 1000, f16), {}, {}, {}, {}, true).to_vector<double>() == std::vector<double>(8, 0));
}

TEST_CASE("a batch with non-finite statistics never touches the running ones") {
  for (double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")})
    for (DType dtype : {f16, f32}) {
      Tensor x = made_up({8, 3, 4, 4}, dtype);
      x.select(0, 5).select(0, 1).select(0, 2).select(0, 3).fill_(bad);
      Tensor running_mean = tensor({1, 2, 3}), running_var = tensor({4, 5, 6});
      const Tensor y = batch_norm(x, {}, {}, running_mean, running_var, true);
      CHECK(running_mean.to_vector<double>() == std::vector<double>{1, 2, 3});
      CHECK(running_var.to_vector<double>() == std::vector<double>{4, 5, 6});
      CHECK(std::isnan(y.to_vector<double>()[16]));    // the channel itself is lost
      CHECK(std::isfinite(y.to_vector<double>()[0]));  // the others are not
    }
}

TEST_CASE("batch_norm keeps the memory layout, and a dense one stays dense") {
  const Tensor x = made_up({2, 8, 4, 5}, f16).channels_last();
  CHECK(batch_norm(x, {}, {}, {}, {}, true).is_channels_last());
  Tensor leaf = x.clone().requires_grad_();
  sum(batch_norm(leaf, {}, {}, {}, {}, true)).backward();
  CHECK(leaf.grad().shape() == x.shape());
}

TEST_CASE("batch_norm has the same bits with any number of threads") {
  const int threads = cpu::num_threads();
  for (const Tensor& x : layouts(made_up({16, 24, 20, 20}, f16))) {
    Tensor leaf = x.clone().requires_grad_();
    std::vector<double> expected, gradient;
    for (int n : {1, 2, 7}) {
      cpu::set_num_threads(n);
      leaf.set_grad({});
      const Tensor y = batch_norm(leaf, {}, {}, {}, {}, true);
      y.backward(made_up(x.shape(), f16, -1, 1, 8));
      if (n == 1) expected = y.to_vector<double>(), gradient = leaf.grad().to_vector<double>();
      CHECK(y.to_vector<double>() == expected);
      CHECK(leaf.grad().to_vector<double>() == gradient);
    }
  }
  cpu::set_num_threads(threads);
}

TEST_CASE("every instruction set computes batch_norm and layer_norm") {
  const cpu::Kernels& chosen = cpu::kernels();
  const Tensor x = made_up({6, 37, 5, 5});
  const auto expected =
      naive_batch_norm(x, channel_statistics(x), std::vector<double>(37, 1), std::vector<double>(37, 0), 1e-5);
  const std::vector<double> rows = layer_norm(x, {5, 5}).to_vector<double>();
  for (const char* const* isa = cpu::kIsaNames; *isa; ++isa) {
    const cpu::Kernels* table = cpu::kernels_for(*isa);
    if (!table) continue;
    CAPTURE(std::string(*isa));
    cpu::use_kernels(*table);
    for (const Tensor& laid : layouts(x.to(f32))) {
      check_close(batch_norm(laid, {}, {}, {}, {}, true), expected, 0, 2e-5);
      check_close(layer_norm(laid, {5, 5}), rows, 0, 2e-5);
    }
  }
  cpu::use_kernels(chosen);
}

TEST_CASE("batch_norm of nothing and of one") {
  CHECK(batch_norm(zeros({0, 3, 2, 2}), {}, {}, {}, {}, true).shape() == Shape{0, 3, 2, 2});
  Tensor running_mean = ones({3}), running_var = ones({3});
  batch_norm(zeros({0, 3}), {}, {}, running_mean, running_var, true);
  CHECK(running_mean.to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK(batch_norm(zeros({2, 0}), {}, {}, {}, {}, true).shape() == Shape{2, 0});
  CHECK_THROWS_WITH_AS(batch_norm(zeros({1, 3}), {}, {}, running_mean, running_var, true),
                       doctest::Contains("one value per channel"), Error);
  CHECK(batch_norm(ones({1, 3}), {}, {}, running_mean, running_var, false).shape() == Shape{1, 3});
  Tensor leaf = zeros({0, 3}).requires_grad_(), weight = ones({3}).requires_grad_();
  sum(batch_norm(leaf, weight, {}, running_mean, running_var, true)).backward();
  CHECK(weight.grad().to_vector<double>() == std::vector<double>{0, 0, 0});
}

TEST_CASE("batch_norm and layer_norm name what is wrong") {
  const Tensor x = zeros({4, 3});
  CHECK_THROWS_WITH_AS(batch_norm(zeros({4}), {}, {}, {}, {}, true), doctest::Contains("expected [N, C, ...]"), Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({4}), {}, {}, {}, true),
                       doctest::Contains("weight is f32 of shape [4], expected a float tensor of shape [3]"), Error);
  CHECK_THROWS_AS(batch_norm(x, {}, ones({3}, i64), {}, {}, true), Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, ones({3}), {}, true),
                       doctest::Contains("only one of running_mean and running_var"), Error);
  CHECK_THROWS_AS(batch_norm(zeros({4, 3}, i32), {}, {}, {}, {}, true), Error);
  CHECK_THROWS_AS(batch_norm(Tensor(), {}, {}, {}, {}, true), Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {4}), doctest::Contains("normalized_shape is [4]"), Error);
  CHECK_THROWS_AS(layer_norm(x, {}), Error);
  CHECK_THROWS_AS(layer_norm(x, {2, 4, 3}), Error);
  CHECK_THROWS_AS(layer_norm(x, {3}, ones({4})), Error);
  CHECK_THROWS_AS(layer_norm(Tensor(), {3}), Error);
}

TEST_CASE("gradients of batch_norm agree with finite differences, twice") {
  for (const Shape& shape : {Shape{4, 3}, Shape{2, 3, 2}, Shape{2, 3, 2, 2}}) {
    const Tensor weight = made_up({3}, f64, 0.5, 1.5, 2), bias = made_up({3}, f64, -1, 1, 3);
    for (const Tensor& x : layouts(made_up(shape))) {
      CAPTURE(x.strides().str());
      check_gradient(train, {x, weight, bias}, 1e-5);
      check_gradient(evaluate, {x, weight, bias}, 1e-5);
    }
    check_second_gradient(train, {made_up(shape), weight, bias}, 1e-4);
    check_second_gradient(evaluate, {made_up(shape), weight, bias}, 1e-4);
  }
}

TEST_CASE("the fused and the composed gradient of batch_norm agree") {
  for (const Tensor& x : layouts(made_up({8, 5, 9, 9}, f32)))
    for (bool training : {true, false}) {
      const Tensor leaf = x.clone().requires_grad_();
      const Tensor weight = made_up({5}, f32, 0.5, 1.5, 2).requires_grad_(), bias = zeros({5}).requires_grad_();
      const Tensor y = batch_norm(leaf, weight, bias, zeros({5}), ones({5}), training);
      const Tensor dy = made_up(y.shape(), f32, -1, 1, 6);
      const Tensors fused = grad(y, {leaf, weight, bias}, dy, true),
                    composed = grad(y, {leaf, weight, bias}, dy, true, true);
      for (std::size_t i = 0; i < 3; ++i) check_close(fused[i], composed[i].detach().to_vector<double>(), 1e-5, 1e-4);
    }
}

TEST_CASE("f16 batch_norm has f32 parameters and f32 gradients for them") {
  Tensor x = made_up({8, 3, 4, 4}, f16).requires_grad_();
  Tensor weight = ones({3}).requires_grad_(), bias = zeros({3}).requires_grad_();
  batch_norm(x, weight, bias, zeros({3}), ones({3}), true).backward(made_up(x.shape(), f16, -1, 1, 5));
  CHECK(x.grad().dtype() == f16);
  CHECK(weight.grad().dtype() == f32);
  CHECK(bias.grad().dtype() == f32);
  // The same in f64 from the same numbers: dx is rounded to f16 once, after f32 errors below 100 u of terms
  // below 8.
  const Tensor wide = x.detach().to(f64).requires_grad_(), w = ones({3}, f64).requires_grad_(),
               b = zeros({3}, f64).requires_grad_();
  batch_norm(wide, w, b, zeros({3}), ones({3}), true).backward(made_up(x.shape(), f16, -1, 1, 5).to(f64));
  const std::vector<double> dx = x.grad().to_vector<double>(), exact = wide.grad().to_vector<double>();
  for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::abs(dx[i] - exact[i]) <= half_ulp(exact[i]) + 5e-5);
  check_close(weight.grad(), w.grad().to_vector<double>(), 1e-5, 1e-4);
  check_close(bias.grad(), b.grad().to_vector<double>(), 1e-5, 1e-4);
}

TEST_CASE("layer_norm of any layout agrees with plain loops") {
  // As for batch_norm: under 300 u = 1.8e-5 for f32, and half an ulp for f16.
  for (DType dtype : {f16, f32, f64})
    for (const Shape& shape : {Shape{7, 20}, Shape{2, 3, 5, 4}, Shape{3, 3000}, Shape{300, 33}, Shape{1, 1}}) {
      const Tensor x = made_up(shape, dtype);
      for (std::size_t last = 1; last <= 2; ++last) {
        const Shape normalized(shape.end() - last, last);
        Shape dims;
        for (std::size_t d = 1; d <= last; ++d) dims.push_back(-static_cast<std::int64_t>(d));
        const Tensor weight = made_up(normalized, f32, 0.5, 1.5, 2), bias = made_up(normalized, f32, -1, 1, 3);
        const std::vector<double> w = weight.to_vector<double>(), b = bias.to_vector<double>();
        std::vector<double> expected;
        for (const std::vector<double>& row : groups(x, dims)) {
          const Statistics s(row);
          for (std::size_t i = 0; i < row.size(); ++i)
            expected.push_back((row[i] - s.mean) / std::sqrt(s.var + 1e-5) * w[i] + b[i]);
        }
        for (const Tensor& laid : layouts(x)) {
          CAPTURE(std::string(name_of(dtype)));
          CAPTURE(shape.str());
          CAPTURE(laid.strides().str());
          const Tensor y = layer_norm(laid, normalized, weight, bias);
          CHECK(y.dtype() == dtype);
          const std::vector<double> values = y.to_vector<double>();
          bool agree = true;
          for (std::size_t i = 0; i < values.size(); ++i)
            agree &= close(values[i], expected[i],
                           dtype == f64 ? 1e-12 : 1.8e-5 + (dtype == f16 ? half_ulp(expected[i]) : 0));
          CHECK(agree);
        }
      }
    }
  CHECK(layer_norm(zeros({0, 4}), {4}).shape() == Shape{0, 4});
  CHECK(layer_norm(zeros({4, 0}), {0}).shape() == Shape{4, 0});
}

TEST_CASE("layer_norm of f16 numbers with mean 1000 and deviation 1 keeps all their digits") {
  const Tensor x = made_up({4, 700}, f64, 998, 1002, 4).to(f16);
  const std::vector<double> y = layer_norm(x, {700}).to_vector<double>();
  const auto rows = groups(x, {1});
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Statistics s(rows[r]);
    bool agree = true;
    for (std::size_t i = 0; i < 700; ++i) {
      const double expected = (rows[r][i] - s.mean) / std::sqrt(s.var + 1e-5);
      agree &= close(y[r * 700 + i], expected, 4e-5 + half_ulp(expected));
    }
    CHECK(agree);
  }
}

TEST_CASE("gradients of layer_norm agree with finite differences, twice") {
  const Tensor weight = made_up({2, 3}, f64, 0.5, 1.5, 2), bias = made_up({2, 3}, f64, -1, 1, 3);
  const auto f = [](const Tensors& t) { return layer_norm(t[0], {2, 3}, t[1], t[2]); };
  for (const Tensor& x : layouts(made_up({4, 2, 3}))) check_gradient(f, {x, weight, bias}, 1e-5);
  check_second_gradient(f, {made_up({4, 2, 3}), weight, bias}, 1e-4);
  check_gradient([](const Tensors& t) { return layer_norm(t[0], {3}); }, {made_up({5, 3})}, 1e-5);
}

TEST_CASE("gradients of layer_norm's parameters are summed over many rows") {
  const Tensor x = made_up({5000, 6}, f32).requires_grad_();
  const Tensor weight = ones({6}).requires_grad_(), bias = zeros({6}).requires_grad_();
  const Tensor y = layer_norm(x, {6}, weight, bias);
  const Tensor dy = made_up(y.shape(), f32, -1, 1, 6);
  const Tensors fused = grad(y, {x, weight, bias}, dy, true), composed = grad(y, {x, weight, bias}, dy, true, true);
  for (std::size_t i = 0; i < 3; ++i) check_close(fused[i], composed[i].detach().to_vector<double>(), 1e-5, 1e-3);
}
