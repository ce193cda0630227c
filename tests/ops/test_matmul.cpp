#include "engine/ops/matmul.h"

#include "engine/ops/elementwise.h"
#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

namespace {

// The product by its definition, of operands that have been given equal batches; of absolute values for
// `magnitude`.
Array naive_product(const Tensor& a, const Tensor& b, bool magnitude) {
  const Tensor left = a.rank() == 1 ? a.unsqueeze(0) : a, right = b.rank() == 1 ? b.unsqueeze(1) : b;
  const std::int64_t m = left.size(-2), k = left.size(-1), n = right.size(-1);
  const Shape batch = broadcast_shapes(Shape(left.shape().data(), left.shape().size() - 2),
                                       Shape(right.shape().data(), right.shape().size() - 2), "test");
  const auto flat = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.size(-2));
    shape.push_back(x.size(-1));
    return Array(x.expand(shape).contiguous().view({batch.numel(), x.size(-2), x.size(-1)}));
  };
  const Array x = flat(left), y = flat(right);
  Array out({batch.numel(), m, n}, 0);
  for (std::int64_t t = 0; t < batch.numel(); ++t)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t l = 0; l < k; ++l) {
          const double product = x({t, i, l}) * y({t, l, j});
          out({t, i, j}) += magnitude ? std::abs(product) : product;
        }
  out.shape = batch;
  if (a.rank() > 1) out.shape.push_back(m);
  if (b.rank() > 1) out.shape.push_back(n);
  return out;
}

void check_product(const Tensor& a, const Tensor& b) {
  CAPTURE(a.shape().str());
  CAPTURE(b.shape().str());
  CAPTURE(std::string(name_of(a.dtype())));
  const Tensor y = matmul(a, b);
  CHECK(y.dtype() == a.dtype());
  check_sums(y, naive_product(a, b, false), naive_product(a, b, true), static_cast<double>(a.size(-1)));
}

struct Shapes {
  Shape a, b;
};

}  // namespace

TEST_CASE("matmul takes every combination of ranks, broadcasts batches and is right in every float dtype") {
  const std::vector<Shapes> cases = {
      {{5}, {5}},
      {{1}, {1}},
      {{5}, {5, 3}},
      {{4, 5}, {5}},
      {{7, 11}, {11, 13}},
      {{1, 1}, {1, 1}},
      {{1, 17}, {17, 1}},
      {{67, 129}, {129, 31}},
      {{5}, {2, 5, 3}},
      {{2, 4, 5}, {5}},
      {{4, 5}, {2, 5, 3}},
      {{2, 4, 5}, {5, 3}},
      {{2, 4, 5}, {2, 5, 3}},
      {{2, 1, 3, 4}, {5, 4, 2}},
      {{3, 1, 4}, {1, 4, 2}},
      {{6, 2, 3, 4, 5}, {2, 1, 5, 3}},
      {{0, 3}, {3, 2}},
      {{2, 3}, {3, 0}},
      {{2, 0}, {0, 3}},
      {{0}, {0}},
      {{0, 2, 3}, {3, 2}},
      {{4, 0}, {0}},
      {{3, 2, 0}, {0, 4}},
  };
  for (DType dtype : {f16, f32, f64})
    for (const Shapes& s : cases) check_product(random(s.a, dtype, 1), random(s.b, dtype, 2));
}

TEST_CASE("matmul reads transposed, permuted, strided and expanded operands") {
  for (DType dtype : {f16, f32, f64}) {
    check_product(random({11, 7}, dtype, 1).t(), random({13, 11}, dtype, 2).t());
    check_product(random({9, 22}, dtype, 1).slice(1, 1, 22, 3), random({14, 5}, dtype, 2).slice(0, 0, 14, 2));
    check_product(random({1, 6}, dtype, 1).expand({4, 6}), random({6}, dtype, 2).unsqueeze(1).expand({6, 3}));
    check_product(random({1, 4, 5}, dtype, 1).expand({3, 4, 5}), random({3, 5, 2}, dtype, 2));
    // Heads of attention: [N, T, H, D] seen as [N, H, T, D], against its transpose.
    const Tensor q = random({2, 5, 3, 4}, dtype, 1).permute({0, 2, 1, 3});
    check_product(q, random({2, 5, 3, 4}, dtype, 2).permute({0, 2, 3, 1}));
    check_product(q.permute({1, 0, 2, 3}), random({1, 2, 4, 3}, dtype, 2));
  }
}

TEST_CASE("matmul of f16 sums in f32: it neither stalls nor overflows on the way") {
  // In f16, 2048 + 1 is 2048.
  CHECK(matmul(ones({4096}, f16), ones({4096}, f16)).item() == 4096);
  // The partial sum 131008 is no half; the result is.
  CHECK(matmul(tensor({65504, 65504, -65504}, f16), ones({3}, f16)).item() == 65504);
  CHECK(std::isinf(matmul(tensor({65504, 65504}, f16), ones({2}, f16)).item()));
  // The smallest subnormals count.
  CHECK(matmul(full({3}, 0x1p-24, f16), ones({3}, f16)).item() == 3 * 0x1p-24);
  CHECK(matmul(full({512}, 0x1p-24, f16), full({512}, 0x1p-9, f16)).item() == 0x1p-24);
}

TEST_CASE("matmul passes inf and NaN on, but only to what they touch") {
  for (DType dtype : {f16, f32, f64}) {
    const double inf = INFINITY;
    const auto y = matmul(tensor({{inf, 1}, {1, 1}}, dtype), tensor({{1, 0}, {1, 1}}, dtype)).to_vector<double>();
    CHECK(y[0] == inf);
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == 2);
    CHECK(y[3] == 1);
  }
}

TEST_CASE("matmul has first and second gradients, summed over broadcast batches") {
  const std::vector<Shapes> cases = {{{3}, {3}},
                                     {{3}, {3, 2}},
                                     {{2, 3}, {3}},
                                     {{2, 3}, {3, 4}},
                                     {{2, 2, 3}, {3, 2}},
                                     {{2, 3}, {2, 3, 2}},
                                     {{3}, {2, 3, 2}},
                                     {{2, 1, 2, 3}, {3, 3, 2}},
                                     {{2, 2, 3}, {1, 3, 1}}};
  for (const Shapes& s : cases) {
    CAPTURE(s.a.str());
    CAPTURE(s.b.str());
    const Function f = [](const Tensors& in) { return matmul(in[0], in[1]); };
    const Tensors inputs{random(s.a, f64, 1), random(s.b, f64, 2)};
    check_gradients(f, inputs);
    check_second_gradients(f, inputs);
  }
}

TEST_CASE("the f16 gradient of a broadcast operand is summed over the batch in f32 and rounded once") {
  // 4096 batches add 1 each; in f16 the sum would stall at 2048.
  Tensor w = ones({1, 1}, f16).requires_grad_();
  matmul(ones({4096, 1, 1}, f16), w).backward(ones({4096, 1, 1}, f16));
  CHECK(w.grad().item() == 4096);
  // The same for a batch in the middle.
  Tensor a = ones({2, 1, 1, 1}, f16).requires_grad_();
  matmul(a, ones({2, 4096, 1, 1}, f16)).backward(ones({2, 4096, 1, 1}, f16));
  CHECK(a.grad().to_vector<double>() == std::vector<double>{4096, 4096});
}

TEST_CASE("gradients of empty products are zeros") {
  Tensor a = ones({2, 0}).requires_grad_(), b = ones({0, 3}).requires_grad_();
  matmul(a, b).backward(ones({2, 3}));
  CHECK(a.grad().shape() == Shape{2, 0});
  CHECK(b.grad().shape() == Shape{0, 3});
  Tensor c = ones({0, 2}).requires_grad_(), d = ones({2, 3}).requires_grad_();
  matmul(c, d).backward(ones({0, 3}));
  CHECK(d.grad().to_vector<double>() == std::vector<double>(6, 0));
}

TEST_CASE("matmul's errors say what does not fit and which cast is missing") {
  CHECK(contains(error_of([] { matmul(ones({2, 3}), ones({4, 2})); }), "a is [2, 3] and b is [4, 2]"));
  const std::string cast_missing = error_of([] { matmul(ones({2, 3}, f16), ones({3, 2})); });
  CHECK(contains(cast_missing, "a is f16 but b is f32"));
  CHECK(contains(cast_missing, "a.to(f32)"));
  CHECK(contains(error_of([] { matmul(ones({2, 3}, i64), ones({3, 2}, i64)); }), "a is i64"));
  CHECK(contains(error_of([] { matmul(2.0, ones({3, 2}, f64)); }), "matmul:"));
  CHECK(contains(error_of([] { matmul(ones({}), ones({3, 2})); }), "at least one dimension"));
  CHECK(contains(error_of([] { matmul(ones({2, 3, 4}), ones({3, 4, 2})); }), "matmul"));
  CHECK(contains(error_of([] { matmul(Tensor(), ones({3, 2})); }), "undefined"));
}

TEST_CASE("linear is x w^T + b for any number of leading dimensions") {
  for (DType dtype : {f16, f32, f64})
    for (const Shape& lead : {Shape{}, Shape{1}, Shape{7}, Shape{2, 3}, Shape{0}, Shape{2, 0, 3}}) {
      CAPTURE(lead.str());
      Shape shape = lead;
      shape.push_back(13);
      const Tensor x = random(shape, dtype, 1), w = random({5, 13}, dtype, 2), b = random({5}, dtype, 3);
      Array exact = naive_product(x, w.t(), false), magnitude = naive_product(x, w.t(), true);
      check_sums(linear(x, w), exact, magnitude, 13);
      const auto bias = b.to_vector<double>();
      for (std::size_t i = 0; i < exact.values.size(); ++i) {
        exact.values[i] += bias[i % 5];
        magnitude.values[i] += std::abs(bias[i % 5]);
      }
      check_sums(linear(x, w, b), exact, magnitude, 14);
    }
}

TEST_CASE("linear reads strided inputs, and no inputs at all give the bias") {
  for (DType dtype : {f16, f32, f64}) {
    const Tensor x = random({6, 10, 7}, dtype, 1).transpose(0, 2).slice(1, 0, 10, 2),
                 w = random({6, 8}, dtype, 2).t().slice(0, 0, 8, 3);
    check_sums(linear(x, w), naive_product(x, w.t(), false), naive_product(x, w.t(), true), 6);
    check_equal(linear(ones({2, 0}, dtype), ones({3, 0}, dtype), tensor({1, 2, 3}, dtype)),
                tensor({{1, 2, 3}, {1, 2, 3}}, dtype));
  }
}

TEST_CASE("linear has first and second gradients") {
  const Function f = [](const Tensors& in) { return linear(in[0], in[1], in[2]); };
  for (const Shape& shape : {Shape{3}, Shape{2, 3}, Shape{2, 2, 3}}) {
    const Tensors inputs{random(shape, f64, 1), random({4, 3}, f64, 2), random({4}, f64, 3)};
    check_gradients(f, inputs);
    check_second_gradients(f, inputs);
  }
}

TEST_CASE("the f16 gradients of linear are summed in f32") {
  Tensor w = ones({1, 1}, f16).requires_grad_(), b = zeros({1}, f16).requires_grad_();
  linear(ones({4096, 1}, f16), w, b).backward(ones({4096, 1}, f16));
  CHECK(w.grad().item() == 4096);
  CHECK(b.grad().item() == 4096);
  CHECK(b.grad().dtype() == f16);
}

TEST_CASE("linear's errors name the operand") {
  const Tensor x = ones({2, 3}), w = ones({4, 3});
  CHECK(contains(error_of([&] { linear(ones({2, 5}), w); }), "x is [2, 5] and weight is [4, 3]"));
  CHECK(contains(error_of([&] { linear(x, w.to(f16)); }), "x.to(f16)"));
  CHECK(contains(error_of([&] { linear(x, w, ones({4}, f16)); }), "bias is f16"));
  CHECK(contains(error_of([&] { linear(x, w, ones({3})); }), "bias is [3], expected [4]"));
  CHECK(contains(error_of([&] { linear(x, ones({3})); }), "weight is [3]"));
  CHECK(contains(error_of([&] { linear(ones({}), w); }), "x is []"));
}
