#include "engine/ops/softmax.h"

#include <limits>

#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "tests/ops/naive.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Softmax along dim by plain loops in f64, in row-major order.
std::vector<double> naive(const Tensor& x, std::int64_t dim, bool log) {
  Tensor y = empty(x.shape(), f64);
  const std::vector<std::vector<double>> lines = groups(x, {dim});
  const std::int64_t n = x.size(dim);
  std::vector<double> flat;  // [lines, n]
  for (const std::vector<double>& line : lines) {
    const double most = *std::max_element(line.begin(), line.end());
    double total = 0;
    for (double v : line) total += std::exp(v - most);
    for (double v : line) flat.push_back(log ? v - most - std::log(total) : std::exp(v - most) / total);
  }
  Shape lines_last;
  for (std::int64_t d = 0; d < x.rank(); ++d)
    if (d != normalize_dim(dim, x.rank(), "naive")) lines_last.push_back(x.size(d));
  lines_last.push_back(n);
  Tensor moved = from_vector(flat, lines_last);
  for (std::int64_t d = x.rank() - 1; d > normalize_dim(dim, x.rank(), "naive"); --d) moved = moved.transpose(d, d - 1);
  return moved.to_vector<double>();
}

Tensor apply(const Tensor& x, std::int64_t dim, bool log) { return log ? log_softmax(x, dim) : softmax(x, dim); }

}  // namespace

TEST_CASE("softmax along any dimension of any layout agrees with plain loops") {
  // f64: a few roundings. f32: e^x is within 1.5 ulp, the sum of n positive terms within (40 + log2 n) u = 50
  // u, u = 2^-24, and a division: 54 u = 3.3e-6 relative for softmax. For log_softmax |x - max| <= 4 and |log
  // sum| <= 8 are rounded to 2^-22 at most, and the sum's relative error is an absolute one of its log: 54 u
  // + 2 * 2^-22 = 3.7e-6. f16: the same, then one rounding: half an ulp.
  for (DType dtype : {f16, f32, f64})
    for (const Shape& shape : {Shape{7}, Shape{5, 10}, Shape{2, 3, 4, 5}, Shape{3, 1000}, Shape{1000, 3}, Shape{40, 70},
                               Shape{2, 3000, 3, 2}}) {
      const Tensor x = made_up(shape, dtype);
      for (const Tensor& laid : layouts(x))
        for (std::int64_t dim = 0; dim < x.rank(); ++dim)
          for (bool log : {false, true}) {
            CAPTURE(std::string(name_of(dtype)));
            CAPTURE(shape.str());
            CAPTURE(laid.strides().str());
            CAPTURE(dim);
            CAPTURE(log);
            const Tensor y = apply(laid, dim - x.rank(), log);
            CHECK(y.dtype() == dtype);
            const std::vector<double> values = y.to_vector<double>(), expected = naive(x, dim, log);
            bool agree = true;
            for (std::size_t i = 0; i < values.size(); ++i) {
              const double f32_error = log ? 3.7e-6 : 3.3e-6 * expected[i];
              agree &= close(values[i], expected[i],
                             dtype == f64 ? 1e-13 * (1 + std::abs(expected[i]))
                                          : f32_error + (dtype == f16 ? half_ulp(expected[i]) : 0));
            }
            CHECK(agree);
          }
    }
}

TEST_CASE("softmax does not overflow, and handles infinities and NaN as PyTorch does") {
  for (DType dtype : {f16, f32, f64}) {
    CHECK(softmax(tensor({65504, 65504, 0}, dtype), 0).to_vector<double>() == std::vector<double>{0.5, 0.5, 0});
    CHECK(log_softmax(tensor({-65504, 0}, dtype), 0).to_vector<double>() == std::vector<double>{-65504, 0});
    CHECK(softmax(tensor({-kInf, 0, -kInf}, dtype), 0).to_vector<double>() == std::vector<double>{0, 1, 0});
    CHECK(log_softmax(tensor({-kInf, 0}, dtype), 0).to_vector<double>() == std::vector<double>{-kInf, 0});
    for (const Tensor& x :
         {full({20}, -kInf, dtype), tensor({1, kInf, 2}, dtype), tensor({1, NAN, 2}, dtype), tensor({NAN}, dtype)})
      for (bool log : {false, true})
        for (double v : apply(x, 0, log).to_vector<double>())
          if (!(log && std::isinf(v))) CHECK(std::isnan(v));
    // one broken line leaves the others alone
    const Tensor two = softmax(tensor({{NAN, 0}, {0, 0}}, dtype), 1);
    CHECK(two[1].to_vector<double>() == std::vector<double>{0.5, 0.5});
  }
  // The smallest results: f16 keeps its subnormals, log_softmax has no underflow.
  CHECK(softmax(tensor({0, -16}, f16), 0).to_vector<double>()[1] == std::ldexp(2, -24));  // e^-16 = 1.89 * 2^-24
  CHECK(log_softmax(tensor({0, -1000}, f16), 0).to_vector<double>()[1] == -1000);
  CHECK(softmax(tensor({0, -100}, f32), 0).to_vector<double>()[1] > 0);  // a subnormal f32
}

TEST_CASE("softmax of sizes 0 and 1") {
  CHECK(softmax(zeros({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(softmax(zeros({3, 0}), 1).shape() == Shape{3, 0});
  CHECK(softmax(full({2, 1}, 5), 1).to_vector<double>() == std::vector<double>{1, 1});
  CHECK(softmax(full({}, 5), 0).item() == 1);
  CHECK(log_softmax(full({}, 5), -1).item() == 0);
}

TEST_CASE("softmax keeps the memory layout") {
  const Tensor x = made_up({2, 3, 4, 5}, f16).channels_last();
  CHECK(softmax(x, 1).is_channels_last());
  CHECK(softmax(x.permute({3, 2, 1, 0}), 0).strides() == x.permute({3, 2, 1, 0}).strides());
}

TEST_CASE("softmax refuses integers and dimensions that are not there") {
  CHECK_THROWS_WITH_AS(softmax(zeros({2}, i64), 0), doctest::Contains("softmax: the tensor is i64"), Error);
  CHECK_THROWS_WITH_AS(log_softmax(zeros({2, 3}), 2), doctest::Contains("log_softmax: dimension 2"), Error);
  CHECK_THROWS_AS(softmax(Tensor(), 0), Error);
}

TEST_CASE("e^x is within 1.5 ulp on every instruction set") {
  // softmax of (0, x), x < -18: the sum rounds to 1, and the result is e^x itself. Then division by 1 is
  // exact.
  const cpu::Kernels& chosen = cpu::kernels();
  for (const char* const* isa = cpu::kIsaNames; *isa; ++isa) {
    const cpu::Kernels* table = cpu::kernels_for(*isa);
    if (!table) continue;
    CAPTURE(std::string(*isa));
    cpu::use_kernels(*table);
    const std::int64_t n = 20000;
    const Tensor x = made_up({n, 1}, f32, -103, -18);
    const std::vector<double> arguments = x.to_vector<double>();
    Tensor pairs = zeros({n, 2});
    pairs.narrow(1, 1, 1).copy_(x);
    const std::vector<double> y = softmax(pairs, 1).select(1, 1).to_vector<double>();
    double worst = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double exact = std::exp(arguments[i]);
      const double ulp = std::ldexp(1, std::max(std::ilogb(exact), -126) - 23);
      worst = std::max(worst, std::abs(y[i] - exact) / ulp);
    }
    CHECK(worst < 1.5);
  }
  cpu::use_kernels(chosen);
}

TEST_CASE("softmax has the same bits with any number of threads") {
  const Tensor x = made_up({50, 300, 4}, f32);
  const int threads = cpu::num_threads();
  const std::vector<double> expected = softmax(x, 1).to_vector<double>();
  for (int n : {1, 5}) {
    cpu::set_num_threads(n);
    CHECK(softmax(x, 1).to_vector<double>() == expected);
  }
  cpu::set_num_threads(threads);
}

TEST_CASE("gradients of softmax agree with finite differences, twice") {
  for (bool log : {false, true})
    for (std::int64_t dim : {0, 1, -1}) {
      CAPTURE(log);
      CAPTURE(dim);
      const auto f = [&](const Tensors& x) { return apply(x[0], dim, log); };
      for (const Tensor& x : layouts(made_up({2, 3, 4}))) check_gradient(f, {x});
      check_second_gradient(f, {made_up({2, 3, 2})});
    }
}

TEST_CASE("the fused f16 gradient of softmax is one rounding away from that of its saved output") {
  // dx from the f16 y and dy, both exact inputs of the formula. The sum of n = 20 products has an error of 45
  // u times the sum of magnitudes (at most 2), a product and a difference add 3 u: 100 u = 6e-6; then half an
  // ulp of f16.
  for (bool log : {false, true})
    for (const Tensor& laid : layouts(made_up({6, 20}, f16))) {
      const Tensor x = laid.clone().requires_grad_();
      const Tensor y = apply(x, 1, log), dy = made_up({6, 20}, f16, -2, 2, 3);
      y.backward(dy);
      const std::vector<double> s = y.to_vector<double>(), d = dy.to_vector<double>(),
                                dx = x.grad().to_vector<double>();
      for (std::size_t row = 0; row < 6; ++row) {
        double total = 0, magnitude = 0;
        for (std::size_t i = row * 20; i < row * 20 + 20; ++i)
          total += log ? d[i] : d[i] * s[i], magnitude += std::abs(d[i]);
        for (std::size_t i = row * 20; i < row * 20 + 20; ++i) {
          const double expected = log ? d[i] - std::exp(s[i]) * total : s[i] * (d[i] - total);
          CHECK(std::abs(dx[i] - expected) <= half_ulp(expected) + 100 * std::ldexp(1 + magnitude, -24));
        }
      }
    }
}
