#include "engine/cpu/gemm.h"

#include <doctest/doctest.h>

#include "engine/cpu/parallel.h"
#include "tests/engine/kernel_testing.h"

using namespace halfgrad;
using halfgrad::testing::Array;
using halfgrad::testing::error_bound;
using halfgrad::testing::for_each_isa;

namespace {

// Compares c with the sum written as a loop. Returns the worst error in units of its bound.
double worst_error(const Array& c, const Array& a, const Array& b, const Array* bias) {
  const Shape& shape = c.view.shape;
  const std::int64_t depth = a.view.shape[2];
  double worst = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t i = 0; i < shape[1]; ++i)
      for (std::int64_t j = 0; j < shape[2]; ++j) {
        long double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          const Strides &sa = a.view.strides, &sb = b.view.strides;
          const long double product = static_cast<long double>(a.get(n * sa[0] + i * sa[1] + k * sa[2])) *
                                      b.get(n * sb[0] + k * sb[1] + j * sb[2]);
          sum += product;
          magnitude += std::abs(product);
        }
        if (bias != nullptr) {
          const double x = bias->get(j * bias->view.strides[0]);
          sum += x;
          magnitude += std::abs(x);
        }
        const Strides& sc = c.view.strides;
        const double got = c.get(n * sc[0] + i * sc[1] + j * sc[2]);
        const double bound =
            error_bound(c.view.dtype, depth + 1, static_cast<double>(magnitude), static_cast<double>(sum));
        const double error = static_cast<double>(std::abs(got - sum));
        if (!(error <= bound)) return std::isfinite(error) ? error / bound : HUGE_VAL;
        if (bound > 0) worst = std::max(worst, error / bound);
      }
  return worst;
}

struct Layout {
  std::vector<int> a, b, c;
  std::int64_t gap;
};
const Layout kRowMajor = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, 0};
const Layout kLayouts[] = {
    kRowMajor,
    {{0, 1, 2}, {0, 2, 1}, {0, 1, 2}, 0},  // b transposed, as the weights of a linear layer
    {{0, 2, 1}, {0, 1, 2}, {0, 1, 2}, 3},  // a transposed, as in its weight gradient
    {{0, 2, 1}, {0, 2, 1}, {0, 2, 1}, 0},  // everything transposed
    {{0, 1, 2}, {0, 1, 2}, {0, 2, 1}, 5},
    {{1, 2, 0}, {2, 1, 0}, {1, 2, 0}, 1},  // the batch innermost: no dimension of a matrix is contiguous
};

void check_product(DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                   const Layout& layout, bool with_bias) {
  Array a(dtype, {batch, m, k}, layout.a, layout.gap), b(dtype, {batch, k, n}, layout.b, layout.gap);
  Array c(dtype, {batch, m, n}, layout.c, layout.gap), bias(dtype, {n}, {}, 0);
  a.fill(1);
  b.fill(2);
  bias.fill(3);
  cpu::gemm(c.view, a.view, b.view, with_bias ? bias.view : View(), Activation::none);
  INFO(name_of(dtype), " ", batch, " x ", m, " x ", n, " x ", k, ", layout ", &layout - kLayouts, ", bias ", with_bias);
  CHECK(worst_error(c, a, b, with_bias ? &bias : nullptr) <= 1);
  CHECK(c.gaps_untouched());
}

}  // namespace

TEST_CASE("gemm: odd sizes, all layouts, every instruction set") {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1},    {2, 3, 5},     {1, 37, 19}, {5, 1, 33},   {3, 129, 70},
                                        {4, 64, 131}, {6, 16, 8},    {7, 17, 9},  {13, 31, 29}, {14, 32, 64},
                                        {15, 33, 65}, {29, 47, 101}, {61, 97, 1}, {97, 11, 41}, {70, 4, 50},
                                        {128, 2, 77}, {16, 260, 513}};
  for_each_isa([&](const char* isa) {
    INFO(isa);
    for (DType dtype : {f16, f32, f64})
      for (const auto& size : kSizes)
        for (const Layout& layout : kLayouts)
          for (bool bias : {false, true}) check_product(dtype, 1, size[0], size[1], size[2], layout, bias);
  });
}

TEST_CASE("gemm: more than one block in every direction") {
  for_each_isa([&](const char* isa) {
    INFO(isa);
    for (DType dtype : {f16, f32}) {
      check_product(dtype, 1, 347, 70, 31, kLayouts[0], true);    // rows
      check_product(dtype, 1, 23, 530, 40, kLayouts[1], false);   // columns
      check_product(dtype, 1, 19, 45, 1543, kLayouts[2], true);   // depth: three passes
      check_product(dtype, 1, 19, 64, 1543, kLayouts[0], false);  // depth, sums kept in c
      check_product(dtype, 1, 350, 300, 600, kLayouts[1], true);
      check_product(dtype, 1, 40, 96, 512, kLayouts[0], false);  // row stride of 2 KiB
      check_product(dtype, 1, 512, 40, 96, kLayouts[2], false);  // and for a transposed a
    }
  });
}

TEST_CASE("gemm: batches") {
  for_each_isa([&](const char* isa) {
    INFO(isa);
    for (DType dtype : {f16, f32, f64})
      for (const Layout& layout : kLayouts) {
        check_product(dtype, 3, 5, 7, 11, layout, true);
        check_product(dtype, 40, 17, 33, 9, layout, false);
      }
  });
}

TEST_CASE("gemm: operands shared by the batch") {
  for (DType dtype : {f16, f32, f64})
    for (bool share_a : {false, true})
      for (bool share_b : {false, true})
        for (const Layout& layout : kLayouts) {
          Array a(dtype, {share_a ? 1 : 6, 9, 20}, layout.a), b(dtype, {share_b ? 1 : 6, 20, 35}, layout.b);
          Array c(dtype, {6, 9, 35}, layout.c);
          a.fill(1);
          b.fill(2);
          for (auto [array, shared] : {std::pair(&a, share_a), std::pair(&b, share_b)})
            if (shared) {
              array->view.shape[0] = 6;
              array->view.strides[0] = 0;
            }
          cpu::gemm(c.view, a.view, b.view, View(), Activation::none);
          CHECK(worst_error(c, a, b, nullptr) <= 1);
        }
}

TEST_CASE("gemm: empty dimensions") {
  for_each_isa([&](const char*) {
    for (DType dtype : {f16, f32, f64}) {
      for (bool bias : {false, true}) {
        check_product(dtype, 1, 5, 40, 0, kRowMajor, bias);  // k = 0 gives zeros or the bias
        check_product(dtype, 2, 1, 3, 0, kLayouts[1], bias);
        check_product(dtype, 1, 0, 4, 4, kRowMajor, bias);
        check_product(dtype, 1, 4, 0, 4, kRowMajor, bias);
        check_product(dtype, 0, 4, 4, 4, kRowMajor, bias);
      }
    }
  });
}

TEST_CASE("gemm: a bias that is one number for all columns, or every other number") {
  for (DType dtype : {f16, f32, f64})
    for (std::int64_t stride : {0, 2}) {
      Array a(dtype, {1, 20, 30}), b(dtype, {1, 30, 40}), c(dtype, {1, 20, 40}), bias(dtype, {80});
      a.fill(1);
      b.fill(2);
      bias.fill(3);
      bias.view.shape = {40};
      bias.view.strides = {stride};
      cpu::gemm(c.view, a.view, b.view, bias.view, Activation::none);
      CHECK(worst_error(c, a, b, &bias) <= 1);
    }
}

TEST_CASE("gemm: f16 sums do not overflow on the way, only at the end") {
  for_each_isa([&](const char*) {
    Array a(f16, {1, 20, 64}), b(f16, {1, 64, 40}), c(f16, {1, 20, 40});
    a.for_each([&](std::int64_t i) { a.set(i, i % 2 == 0 ? 240 : -240); });
    b.for_each([&](std::int64_t i) { b.set(i, 240); });
    cpu::gemm(c.view, a.view, b.view, View(), Activation::none);
    c.for_each([&](std::int64_t i) { REQUIRE(c.get(i) == 0); });
    a.for_each([&](std::int64_t i) { a.set(i, 240); });
    cpu::gemm(c.view, a.view, b.view, View(), Activation::none);
    c.for_each([&](std::int64_t i) { REQUIRE(c.get(i) == HUGE_VAL); });
  });
}

TEST_CASE("gemm: NaN and infinity come through, also next to padding") {
  for_each_isa([&](const char*) {
    for (DType dtype : {f16, f32, f64}) {
      Array a(dtype, {1, 15, 7}), b(dtype, {1, 7, 33}), c(dtype, {1, 15, 33});
      a.fill(1);
      b.fill(2);
      a.set(3 * 7 + 2, NAN);
      b.set(4 * 33 + 32, HUGE_VAL);
      cpu::gemm(c.view, a.view, b.view, View(), Activation::none);
      for (std::int64_t i = 0; i < 15; ++i)
        for (std::int64_t j = 0; j < 33; ++j) {
          const double x = c.get(i * 33 + j);
          if (i == 3) {
            REQUIRE(std::isnan(x));
          } else {
            REQUIRE(std::isinf(x) == (j == 32));
          }
        }
    }
  });
}

TEST_CASE("gemm: the same bits with any number of threads") {
  const int usual = cpu::num_threads();
  for_each_isa([&](const char* isa) {
    INFO(isa);
    for (DType dtype : {f16, f32, f64})
      for (const auto& size : {Shape{1, 128, 256, 784}, Shape{1, 700, 300, 520}, Shape{50, 30, 40, 50},
                               Shape{1, 3, 1000, 700}, Shape{1, 1000, 2, 900}})
        for (const Layout& layout : {kLayouts[0], kLayouts[1]}) {
          Array a(dtype, {size[0], size[1], size[3]}, layout.a), b(dtype, {size[0], size[3], size[2]}, layout.b);
          a.fill(1);
          b.fill(2);
          Array one(dtype, {size[0], size[1], size[2]}), other(one);
          cpu::set_num_threads(1);
          cpu::gemm(one.view, a.view, b.view, View(), Activation::none);
          for (int threads : {2, 3}) {
            cpu::set_num_threads(threads);
            cpu::gemm(other.view, a.view, b.view, View(), Activation::none);
            CHECK(one.same_bits(other));
          }
        }
  });
  cpu::set_num_threads(usual);
}
