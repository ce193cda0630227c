#include "engine/ops/dropout.h"

#include <cmath>
#include <limits>

#include "engine/autograd.h"
#include "engine/cpu/parallel.h"
#include "engine/ops/elementwise.h"
#include "engine/random.h"
#include "tests/engine/kernel_testing.h"
#include "tests/nn/expect.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

// Dropout as three ops: the numbers of a bernoulli fill, and two products, of which the first is exact.
Tensor composed(const Tensor& x, double p) {
  Tensor kept = empty(x.shape(), x.dtype());
  Generator& generator = default_generator();
  const auto counters = static_cast<std::uint64_t>((x.numel() + 3) / 4);
  backend_for(x.device())
      .random(Distribution::bernoulli, kept.view_of_data(), 1 - p, 0, generator.seed(), generator.reserve(counters));
  return x * kept * (p < 1 ? 1 / (1 - p) : 0);
}

Tensor dropped(const Tensor& x, double p) {
  manual_seed(21);
  return dropout(x, p);
}

}  // namespace

TEST_CASE("dropout zeroes a share p and scales the rest") {
  manual_seed(11);
  for (const DType dtype : {f16, f32, f64}) {
    const Tensor y = dropout(full({100, 100}, 3, dtype), 0.25);
    CHECK(y.dtype() == dtype);
    const double kept = full({}, 3 / 0.75, dtype).item();  // one rounding
    int zeros = 0;
    for (const double v : y.to_vector<double>()) {
      CHECK((v == 0 || v == kept));
      zeros += v == 0;
    }
    CHECK(std::abs(zeros - 2500) < 5 * std::sqrt(10000 * 0.25 * 0.75));  // five deviations
  }
}

TEST_CASE("dropout draws anew each time, and the same again from the same seed") {
  const Tensor x = ones({1000});
  manual_seed(1);
  const Tensor a = dropout(x, 0.5), b = dropout(x, 0.5);
  manual_seed(1);
  CHECK(same_bits(dropout(x, 0.5), a));
  CHECK_FALSE(same_bits(a, b));
}

TEST_CASE("the gradient passes where the input did, with the same factor") {
  manual_seed(2);
  Tensor x = ones({50}).requires_grad_();
  const Tensor y = dropout(x, 0.4);
  y.backward(ones({50}));
  CHECK(same_bits(x.grad(), y));
}

TEST_CASE("dropout is one product with a random factor, bit for bit, in every layout") {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {inf, -inf, NAN, 0.0, -0.0, 65504, -65504, 0x1p-24, -0x1p-24, 3, -3};
  std::vector<double> values;
  for (int i = 0; i < 8 * 19 * 3 * 5; ++i) values.push_back(i % 3 == 0 ? special[i % special.size()] : 0.1 * i - 90);
  for (const DType dtype : {f16, f32, f64})
    for (const double p : {0.3, 0.5, 0.999, 1.0}) {
      const Tensor x = from_vector(values, {8, 19, 3, 5}).to(dtype);
      for (const Tensor& laid :
           {x, x.channels_last(), x.permute({3, 0, 2, 1}), x.slice(3, 0, 5, 2), x[0].transpose(0, 2), x[0][0].t(),
            x.flatten().slice(0, 1, 2000, 3), x.select(1, 3).unsqueeze(1).expand({8, 4, 3, 5})}) {
        CAPTURE(laid.strides().str());
        manual_seed(21);
        const Tensor expected = composed(laid, p);
        CHECK(same_bits(dropped(laid, p), expected));
        CHECK(dropped(laid, p).strides() == expected.strides());
      }
    }
}

TEST_CASE("dropout has the same bits with every instruction set and any number of threads") {
  const int threads = cpu::num_threads();
  for (const DType dtype : {f16, f32, f64}) {
    manual_seed(4);
    const Tensor x = randn({50001}, dtype), images = randn({3, 7, 31, 33}, dtype).channels_last();
    const Tensor y = dropped(x, 0.4), z = dropped(images, 0.4);
    for_each_isa([&](const char* isa) {
      CAPTURE(isa);
      for (const int n : {1, 2}) {
        cpu::set_num_threads(n);
        CHECK(same_bits(dropped(x, 0.4), y));
        CHECK(same_bits(dropped(images, 0.4), z));
      }
    });
    cpu::set_num_threads(threads);
  }
}

TEST_CASE("the gradient of dropout is dropout of any dy, and so is that of the gradient") {
  manual_seed(6);
  const Tensor x = randn({4, 7}).requires_grad_(), dy = randn({7, 4}).t().requires_grad_();
  const Tensor y = dropped(x, 0.3);
  CHECK(y.grad_fn()->inputs.size() == 1);
  randn({100});  // the generator goes on; the gradient knows its place
  const Tensor dx = grad(y, {x}, dy, true, true)[0];
  CHECK(same_bits(dx, dropped(dy, 0.3)));
  const Tensor v = randn({4, 7});
  CHECK(same_bits(grad(dx, {dy}, v)[0], dropped(v, 0.3)));
  CHECK(same_bits(grad(dropped(x, 0.3), {x}, ones({}).expand({4, 7}))[0], dropped(ones({4, 7}), 0.3)));
}

TEST_CASE("dropout is the identity outside of training and for p = 0, and draws nothing") {
  const Tensor x = ones({10});
  const GeneratorState before = default_generator().state();
  CHECK(dropout(x, 0.5, false).is_same(x));
  CHECK(dropout(x, 0).is_same(x));
  CHECK(default_generator().state() == before);
}

TEST_CASE("p = 1 drops everything") { check_values(dropout(ones({5}), 1), {0, 0, 0, 0, 0}); }

TEST_CASE("dropout says what is wrong") {
  CHECK(has(error_of([] { dropout(ones({3}), 1.5); }), "dropout: p is 1.5"));
  CHECK(has(error_of([] { dropout(ones({3}), NAN); }), "dropout: p is nan"));
  CHECK(has(error_of([] { dropout(ones({3}, i64)); }), "dropout: x is i64"));
}
