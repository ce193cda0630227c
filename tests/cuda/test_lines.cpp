// Ops that go along lines, where the registry's small samples do not reach: lines that a warp, a block or several blocks
// share, at all lengths around those of the kernels' steps, and memory that is moved 16 bytes at a time or is not.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/join.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "engine/ops/reduce.h"
#include "engine/ops/softmax.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

const Device gpu = Device::cuda();

// Lines as long as the steps of the kernels, give or take one: a thread alone takes up to 16 elements, a warp 1024, a block
// 8192 in one chunk; a step is eight for each thread.
const std::int64_t kLengths[] = {1, 7, 8, 9, 16, 17, 33, 255, 257, 1024, 1025, 8192, 8193, 20000};
// Fewer of them, where the emulation is slow.
const std::int64_t kFewLengths[] = {1, 9, 33, 257, 1025, 8193};

// x in some layouts: rows, rows that begin anywhere in memory, columns, and every second element.
Tensors layouts_of(const Tensor& x) {
  Tensors layouts = {x, x.transpose(0, 1).contiguous().transpose(0, 1), arrange_in(x, Layout::sliced)};
  Tensor wider = zeros({x.size(0), x.size(1) + 3}, x.dtype());
  wider.slice(1, 1, 1 + x.size(1)).copy_(x);
  layouts.push_back(wider.slice(1, 1, 1 + x.size(1)));
  return layouts;
}

// The same layout on the GPU.
Tensor on_gpu(const Tensor& x) {
  const Tensor whole = x.to(gpu);
  Tensor y = empty_strided(x.shape(), x.strides(), x.dtype(), gpu);
  y.copy_(whole);
  return y;
}

std::vector<double> numbers(const Tensor& x) { return x.to(Device::cpu()).to(f64).to_vector<double>(); }

// Where and how `found` differs from `expected`, by more than relative * scale[i]; empty when it does not.
std::string difference(const Tensor& found, const Tensor& expected, double relative, const Tensor& scale) {
  const std::vector<double> a = numbers(found), b = numbers(expected), size = numbers(scale);
  if (found.shape() != expected.shape() || scale.shape() != expected.shape())
    return fmt::format("shape {}, expected {}", found.shape(), expected.shape());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::abs(a[i] - b[i]) <= relative * size[i]))
      return fmt::format("element {} is {:.9g}, expected {:.9g} within {:.3g}", i, a[i], b[i], relative * size[i]);
  }
  return "";
}
void check_close(const Tensor& found, const Tensor& expected, double relative, const Tensor& scale) {
  const std::string wrong = difference(found, expected, relative, scale);
  CHECK_MESSAGE(wrong.empty(), wrong);
}
void check_equal(const Tensor& found, const Tensor& expected) { check_close(found, expected, 0, expected); }

// The unit roundoff of what is stored in a dtype.
double unit_of(DType t) { return t == f16 ? 0x1p-11 : t == f32 ? 0x1p-24 : 0x1p-53; }

// The error of a sum of n numbers in f32 on a GPU, in units of f32 and relative to the sum of their sizes: one for each
// addition on an element's way. A thread adds 3 in its eight and at most 31 turns (of 8192 elements, or 128 alone), a warp
// 5, the warps 7; and the same for the results of the chunks, of which there are at most 8192. That of the CPU is 38 and one
// for each halving of the rest (pairwise_sum in cpu/kernels/lanes.h).
constexpr double kSumUnits = 2 * (3 + 128 + 5 + 7) + 38 + 20;
double sum_error(DType t) { return kSumUnits * (t == f64 ? 0x1p-53 : 0x1p-24) + unit_of(t); }

}  // namespace

TEST_CASE("sums and means of lines of every length and layout") {
  for (std::int64_t n : kLengths)
    for (DType t : {f16, f32, f64})
      for (const Tensor& x : layouts_of(uniform({3, n}).to(t))) {
        CAPTURE(n);
        CAPTURE(halfgrad::name_of(t));
        CAPTURE(x.strides().str());
        const Tensor y = on_gpu(x), wide = x.to(f64);
        check_close(sum(y, {1}), sum(wide, {1}), sum_error(t), sum(abs(wide), {1}));
        check_close(mean(y, {1}), mean(wide, {1}), sum_error(t), mean(abs(wide), {1}));
        check_close(sum(y), sum(wide), sum_error(t), sum(abs(wide)));
        check_close(sum(y, {0}), sum(wide, {0}), sum_error(t), sum(abs(wide), {0}));
      }
}

TEST_CASE("reductions of integers are exact, and wrap around like the CPU's") {
  for (std::int64_t n : kFewLengths)
    for (DType t : {i32, i64, u8, boolean})
      for (const Tensor& x : layouts_of(whole_numbers({2, n}, -100, 100, t))) {
        CAPTURE(n);
        CAPTURE(halfgrad::name_of(t));
        const Tensor y = on_gpu(x);
        for (const Shape& dims : {Shape{1}, Shape{0}, Shape{}}) {
          check_equal(sum(y, dims), sum(x, dims));
          check_equal(prod(y, dims), prod(x, dims));
          check_equal(max(y, dims), max(x, dims));
          check_equal(min(y, dims), min(x, dims));
          check_equal(any(y, dims), any(x, dims));
          check_equal(all(y, dims), all(x, dims));
        }
        check_equal(cumsum(y, 1), cumsum(x, 1));
      }
}

TEST_CASE("reductions over nine dimensions of eighteen, none of which can be merged") {
  Shape shape, backwards, even;
  for (std::int64_t d = 0; d < 18; ++d) {
    shape.push_back(2);
    backwards.push_back(17 - d);
    if (d % 2 == 0) even.push_back(d);
  }
  const Tensor x = integers(shape, -100, 100).permute(backwards), y = on_gpu(x);
  check_equal(sum(y, even), sum(x, even));
  check_equal(max(y, even, true), max(x, even, true));
  check_equal(any(eq(y, 99), even), any(eq(x, 99), even));
  check_equal(argmax(y, 3), argmax(x, 3));
  check_equal(cumsum(y, 8), cumsum(x, 8));
}

TEST_CASE("extrema and their positions, with ties and NaN anywhere in a line") {
  for (std::int64_t n : kLengths)
    for (DType t : {f16, f32, f64})
      for (bool with_nan : {false, true}) {
        Tensor values = integers({3, n}, -40, 40).to(t);
        if (with_nan) {
          values.slice(0, 1, 2).slice(1, n / 2).copy_(full({1, n - n / 2}, NAN, t));
          values.slice(0, 2, 3).slice(1, n - 1).copy_(full({1, 1}, NAN, t));
        }
        for (const Tensor& x : layouts_of(values)) {
          CAPTURE(n);
          CAPTURE(halfgrad::name_of(t));
          CAPTURE(x.strides().str());
          const Tensor y = on_gpu(x);
          check_equal(argmax(y, 1), argmax(x, 1));
          check_equal(argmin(y, 1), argmin(x, 1));
          check_equal(argmax(y, 0), argmax(x, 0));
          check_equal(argmin(y), argmin(x));
          check_close(max(y, {1}), max(x, {1}), 0, max(x, {1}));
          check_close(min(y, {0}), min(x, {0}), 0, min(x, {0}));
        }
      }
}

TEST_CASE("running sums, from either end") {
  for (std::int64_t n : kFewLengths)
    for (DType t : {f16, f32, f64})
      for (const Tensor& x : layouts_of(uniform({2, n}).to(t))) {
        CAPTURE(n);
        CAPTURE(halfgrad::name_of(t));
        // In double on both sides, and rounded once. In f64 each of n - 1 additions may be wrong by a unit.
        const double units = unit_of(t) + static_cast<double>(2 * n) * 0x1p-53;
        Tensor a = x.detach(), b = on_gpu(x);
        a.requires_grad_();
        b.requires_grad_();
        const Tensor running = cumsum(a, 1), on_device = cumsum(b, 1), sizes = cumsum(abs(x.to(f64)), 1);
        check_close(on_device, running, 2 * units, sizes);
        const Tensor dy = uniform({2, n}, -2, 2, 5).to(t);
        check_close(grad(on_device, {b}, dy.to(gpu))[0], grad(running, {a}, dy)[0], 2 * units,
                    full({2, n}, 2.0 * static_cast<double>(n), f64));
        check_close(cumsum(b, 0), cumsum(a, 0), 2 * units, cumsum(abs(x.to(f64)), 0));
      }
}

TEST_CASE("softmax and its gradient, along lines of every length and layout") {
  for (std::int64_t n : kLengths)
    for (DType t : {f16, f32, f64})
      for (const Tensor& x : layouts_of(uniform({3, n}, -4, 4).to(t)))
        for (bool log : {false, true}) {
          CAPTURE(n);
          CAPTURE(halfgrad::name_of(t));
          CAPTURE(log);
          const auto run = [&](const Tensor& input) {
            const Tensor leaf = Tensor(input.detach()).requires_grad_();
            const Tensor y = log ? log_softmax(leaf, 1) : softmax(leaf, 1);
            const Tensor dy = uniform({3, n}, -1, 1, 7).to(t).to(f64).to(input.dtype()).to(input.device());
            return Tensors{y, grad(y, {leaf}, dy)[0]};
          };
          const Tensors found = run(on_gpu(x)), exact = run(x.to(f64));
          // y = e^(x - most) / sum: some units for the exponential, and the sum's error. Then dx = y (dy - sum(dy y)), or
          // dy - e^y sum(dy): the error of y, of at most 10 for log_softmax, and of the sum of at most n terms of size 1.
          const double units = 16 * (t == f64 ? 0x1p-53 : 0x1p-24) + sum_error(t);
          const Tensor sizes = log ? abs(exact[0]) + 10 : exact[0] + (t == f16 ? 0x1p-13 : 0x1p-126);
          check_close(found[0], exact[0], units, sizes);
          const Tensor total = log ? 1 + softmax(x.to(f64), 1) * static_cast<double>(n) * 14
                                   : 4 * exact[0] + (t == f16 ? 0x1p-12 : 0x1p-126);
          check_close(found[1], exact[1], 2 * units, total);
        }
}

// The units of softmax, below, make log_p wrong by as many times |log_p| + 10, which is less than 28 for these logits, and p by
// as much relative to p. Weights are at most 1.5 and dy 1, so a loss is wrong by less than 64 units, and a gradient by 64
// units of p and of itself, and one of what smoothing subtracts.
TEST_CASE("cross_entropy and its gradient, along lines of every length and layout") {
  for (std::int64_t n : kLengths)
    for (DType t : {f16, f32, f64})
      for (const Tensor& x : layouts_of(uniform({3, n}, -4, 4).to(t)))
        for (double smoothing : {0.0, 0.1}) {
          CAPTURE(n);
          CAPTURE(halfgrad::name_of(t));
          CAPTURE(smoothing);
          const Tensor target = from_vector(std::vector<std::int64_t>{0, n - 1, n > 2 ? n / 2 : -7});
          const auto run = [&](const Tensor& input, bool weighted) {
            const Tensor leaf = Tensor(input.detach()).requires_grad_();
            const Tensor weight = uniform({n}, 0.5, 1.5, 3).to(t).to(input.dtype()).to(input.device());
            const Tensor y = cross_entropy(leaf, target.to(input.device()),
                                           {.weight = weighted ? weight : Tensor(),
                                            .label_smoothing = smoothing,
                                            .ignore_index = -7,
                                            .reduction = Reduction::none});
            const Tensor dy = uniform({3}, -1, 1, 7).to(t).to(input.dtype()).to(input.device());
            return Tensors{y, grad(y, {leaf}, dy)[0]};
          };
          for (bool weighted : {false, true}) {
            const Tensors found = run(on_gpu(x), weighted), exact = run(x.to(f64), weighted);
            const double unit = t == f64 ? 0x1p-53 : 0x1p-24, units = (16 + kSumUnits) * unit;
            const double tiny = t == f16 ? 0x1p-25 : t == f32 ? 0x1p-126 : 0;
            check_close(found[0], exact[0], 1, abs(exact[0]) * unit_of(t) + (64 * units + tiny));
            const Tensor p = softmax(x.to(f64), 1), size = abs(exact[1]);
            check_close(found[1], exact[1], 1,
                        (p + size + smoothing / static_cast<double>(n)) * (64 * units) + size * unit_of(t) + tiny);
          }
        }
}

TEST_CASE("layer_norm and its gradients, with rows of every length and layout") {
  for (std::int64_t n : kLengths)
    for (DType t : {f16, f32, f64})
      for (const Tensor& x : layouts_of((uniform({3, n}, -2, 2) + 5).to(t))) {
        if (n == 1) continue;  // the deviation is 0
        CAPTURE(n);
        CAPTURE(halfgrad::name_of(t));
        const auto run = [&](const Tensor& input) {
          const auto like = [&](const Tensor& p) {
            return Tensor(p.to(t).to(input.dtype()).to(input.device())).requires_grad_();
          };
          const Tensor leaf = Tensor(input.detach()).requires_grad_();
          const Tensor weight = like(uniform({n}, 0.5, 1.5, 3)), bias = like(uniform({n}, -1, 1, 4));
          const Tensor y = layer_norm(leaf, {n}, weight, bias, 1e-5);
          Tensors results = grad(y, {leaf, weight, bias}, like(uniform({3, n}, -1, 1, 7)).detach());
          results.push_back(y);
          return results;
        };
        const Tensors found = run(on_gpu(x)), exact = run(x.to(f64));
        // A deviation of about 1 and values of at most 7 of its size: the error of the mean is seven times that of a sum,
        // that of rstd no larger; z is at most 4, and a gradient at most 4 * 1.5 * (1 + 4) / deviation.
        const double units = 8 * sum_error(t);
        for (std::size_t i = 0; i < found.size(); ++i)
          check_close(found[i], exact[i], units, full(exact[i].shape(), 30, f64));
      }
}

TEST_CASE("the gradients of layer_norm's weights sum over many rows") {
  const Tensor x = uniform({300, 5}).to(f32);
  const auto run = [&](const Tensor& input) {
    const auto like = [&](const Tensor& p) {
      return Tensor(p.to(f32).to(input.dtype()).to(input.device())).requires_grad_();
    };
    const Tensor weight = like(uniform({5}, 0.5, 1.5, 3)), bias = like(uniform({5}, -1, 1, 4));
    const Tensor y = layer_norm(input, {5}, weight, bias, 1e-5);
    return grad(y, {weight, bias}, like(uniform({300, 5}, -1, 1, 7)).detach());
  };
  const Tensors found = run(x.to(gpu)), exact = run(x.to(f64));
  // 300 terms of at most 3.
  for (std::size_t i = 0; i < found.size(); ++i)
    check_close(found[i], exact[i], sum_error(f32) + 16 * 0x1p-24, full({5}, 900, f64));
}

TEST_CASE("rows are looked up and added in the order of the index, bit for bit") {
  for (DType t : {f16, f32, u8})
    for (std::int64_t columns : {1, 7, 8, 24, 300})
      for (std::int64_t rows : {3, 40, 100}) {
        CAPTURE(halfgrad::name_of(t));
        CAPTURE(columns);
        CAPTURE(rows);
        const Tensor x = (uniform({11, columns}) * 100 + 300).to(t),
                     src = (uniform({rows, columns}, -2, 2, 3) * 50 + 300).to(t);
        const Tensor index = integers({rows}, 0, 11, 9);
        check_equal(index_select(x.to(gpu), 0, index.to(gpu)), index_select(x, 0, index));
        check_equal(index_select(on_gpu(x.transpose(0, 1)), 1, index.to(gpu)),
                    index_select(x.transpose(0, 1), 1, index));
        check_equal(index_add(x.to(gpu), 0, index.to(gpu), src.to(gpu)), index_add(x, 0, index, src));
        const Tensor x_columns = x.transpose(0, 1), src_columns = src.transpose(0, 1);
        check_equal(index_add(on_gpu(x_columns), 1, index.to(gpu), on_gpu(src_columns)),
                    index_add(x_columns, 1, index, src_columns));
        const Tensor own = integers({rows, columns}, 0, 11, 13);
        check_equal(scatter_add(x.to(gpu), 0, own.to(gpu), src.to(gpu)), scatter_add(x, 0, own, src));
        check_equal(gather(x.to(gpu), 0, own.to(gpu)), gather(x, 0, own));
      }
}

TEST_CASE("more rows than are searched at a time, many of them the same") {
  const Tensor index = cat({integers({5000}, 0, 3, 9), integers({100}, 0, 2000, 11)}, 0);
  const Tensor x = uniform({2000, 3}).to(f32), src = uniform({5100, 3}, -2, 2, 3).to(f32);
  check_equal(index_add(x.to(gpu), 0, index.to(gpu), src.to(gpu)), index_add(x, 0, index, src));
}

TEST_CASE("the sum of a row has the same bits alone and among others") {
  for (std::int64_t n : {40, 3000, 9000}) {
    const Tensor x = uniform({4, n}).to(f16).to(gpu);
    const std::vector<double> sums = numbers(sum(x.to(f32), {1}));
    for (std::int64_t row = 0; row < 4; ++row)
      CHECK(numbers(sum(x.slice(0, row, row + 1).to(f32), {1}))[0] == sums[static_cast<std::size_t>(row)]);
  }
}
