#include "engine/ops/dropout.h"

#include <cmath>

#include "engine/random.h"
#include "tests/nn/expect.h"

using namespace halfgrad;
using namespace halfgrad::testing;

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
