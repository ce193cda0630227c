// Tensors on a GPU: how they get there and back, and what can be asked of them.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <thread>

#include "engine/ops/elementwise.h"
#include "engine/random.h"
#include "engine/tensor.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

const Device gpu = Device::cuda();
constexpr DType kDTypes[] = {f16, f32, f64, i32, i64, u8, boolean};

// The same bytes; NaN payloads count, too.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = a.detach().to(Device::cpu()).contiguous(), y = b.detach().to(Device::cpu()).contiguous();
  return x.numel() == 0 ||
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

Tensor sample(const Shape& shape, DType dtype) { return uniform(shape, -100, 300).to(dtype); }

}  // namespace

TEST_CASE("a tensor goes to the GPU and back with all its bits, in every dtype, shape and layout") {
  for (DType t : kDTypes)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{3, 0, 2}, Shape{3, 5}, Shape{2, 3, 4, 5}})
      for (Layout layout : kLayouts) {
        const Tensor x = arrange_in(sample(shape, t), layout);
        CAPTURE(name_of(t));
        CAPTURE(shape.str());
        CAPTURE(name_of(layout));
        const Tensor y = x.to(gpu);
        CHECK(y.device() == gpu);
        CHECK(same_bits(x, y.to(Device::cpu())));
        if (is_dense(x.shape(), x.strides())) CHECK(y.strides() == x.strides());
        CHECK(y.to(gpu).is_same(y));
        // Rearranged on the GPU, it must be the same again.
        CHECK(same_bits(x, arrange_in(sample(shape, t).to(gpu), layout)));
      }
  const Tensor special = special_values().to(f16);
  CHECK(same_bits(special, special.to(gpu)));
}

TEST_CASE("a part of a tensor that begins anywhere goes to the GPU and back") {
  const Tensor x = sample({5, 7}, f16), y = x.to(gpu);
  CHECK(same_bits(x.slice(1, 1), y.slice(1, 1)));
  CHECK(same_bits(x.slice(0, 1), y.slice(0, 1)));
  CHECK(same_bits(x.select(1, 3), y.select(1, 3)));
  CHECK(same_bits(x.flatten().slice(0, 3, 30, 2), y.flatten().slice(0, 3, 30, 2)));
}

TEST_CASE("the gradient goes back to the device that the tensor came from") {
  Tensor x = sample({3, 5}, f32).requires_grad_();
  const Tensor y = x.to(gpu);
  CHECK(y.requires_grad());
  (y * 2).backward(ones_like(y));
  CHECK(x.grad().device() == Device::cpu());
  CHECK(same_bits(x.grad(), full({3, 5}, 2)));
}

TEST_CASE("factories make tensors on the GPU") {
  CHECK(same_bits(zeros({3, 5}, f16, gpu), zeros({3, 5}, f16)));
  CHECK(same_bits(ones({3, 5}, boolean, gpu), ones({3, 5}, boolean)));
  CHECK(same_bits(full({5, 3}, -2.5, f32, gpu), full({5, 3}, -2.5, f32)));
  CHECK(same_bits(full({5}, -0.0, f32, gpu), full({5}, -0.0, f32)));
  CHECK(same_bits(full({5}, 1e9, u8, gpu), full({5}, 255, u8)));
  CHECK(same_bits(full({5}, 0.1, f16, gpu), full({5}, 0.1, f16)));
  CHECK(same_bits(arange(0.0, 5.0, 0.5, f16, gpu), arange(0.0, 5.0, 0.5, f16)));
  CHECK(same_bits(arange(9, i64, gpu), arange(9)));
  CHECK(same_bits(linspace(0, 1, 7, f32, gpu), linspace(0, 1, 7)));
  CHECK(same_bits(eye(3, 5, f32, gpu), eye(3, 5)));
  CHECK(same_bits(tensor({{1, 2}, {3, 4}}, f16, gpu), tensor({{1, 2}, {3, 4}}, f16)));
  CHECK(same_bits(from_vector(std::vector<int>{1, 2, 3}, {3}, gpu), from_vector(std::vector<int>{1, 2, 3})));
  CHECK(same_bits(from_vector(std::vector<bool>{true, false}, {2}, gpu), from_vector(std::vector<bool>{true, false})));
  CHECK(zeros({0, 3}, f32, gpu).device() == gpu);
  for (const Tensor& x : {zeros_like(ones({2}, f16, gpu)), rand_like(ones({2}, f16, gpu)),
                          empty_like(ones({2}, f16, gpu)), randint(0, 5, {4}, gpu)})
    CHECK(x.device() == gpu);
}

TEST_CASE("values on the host: item, to_vector, printing") {
  const Tensor x = tensor({{1, 2.5}, {-3, 4}}, f16, gpu);
  CHECK(x.select(0, 1).select(0, 0).item<int>() == -3);
  CHECK(x.t().to_vector<double>() == std::vector<double>{1, -3, 2.5, 4});
  CHECK(x.str() == "[[  1, 2.5],\n [ -3,   4]]  f16 [2, 2] cuda:0");
  std::ostringstream out;
  out << x.select(0, 0);
  CHECK(out.str() == "[  1, 2.5]  f16 [2] cuda:0");
  CHECK_THROWS_WITH_AS(x.data<half>(), "data: the tensor is on cuda:0; copy it to the cpu first with to(Device::cpu())",
                       Error);
  CHECK_THROWS_WITH_AS(x.item(), doctest::Contains("expected exactly one element"), Error);
}

TEST_CASE("copy_ converts, broadcasts and crosses devices") {
  const Tensor x = sample({3, 5}, f32);
  for (DType t : kDTypes) {
    CAPTURE(name_of(t));
    Tensor on_gpu = empty({2, 3, 5}, t, gpu), on_cpu = empty({2, 3, 5}, t);
    on_cpu.copy_(x);
    CHECK(same_bits(on_gpu.copy_(x), on_cpu));
    CHECK(same_bits(on_gpu.copy_(x.to(gpu)), on_cpu));
    CHECK(same_bits(zeros({2, 3, 5}, t).copy_(on_gpu), on_cpu));
    // Into every second column.
    CHECK(same_bits(zeros({3, 10}, t, gpu).slice(1, 1, 10, 2).copy_(x.to(gpu)), on_cpu[0]));
  }
  Tensor row = arange(6, f32, gpu);
  row.slice(0, 1).copy_(row.slice(0, 0, 5));  // overlapping
  CHECK(row.to_vector<int>() == std::vector<int>{0, 0, 1, 2, 3, 4});
}

TEST_CASE("arithmetic in place, in any layout") {
  const Tensor x = sample({4, 6}, f16), y = sample({6}, f32);
  for (Layout layout : {Layout::plain, Layout::transposed, Layout::sliced}) {
    CAPTURE(name_of(layout));
    Tensor a = arrange_in(x, layout).clone(), b = arrange_in(x.to(gpu), layout).clone();
    CHECK(same_bits(a.add_(y, 0.3), b.add_(y.to(gpu), 0.3)));
    CHECK(same_bits(a.mul_(y), b.mul_(y.to(gpu))));
    CHECK(same_bits(a.sub_(1), b.sub_(1)));
    CHECK(same_bits(a.div_(7), b.div_(7)));
    CHECK(same_bits(a.clamp_(-5, 100), b.clamp_(-5, 100)));
    CHECK(same_bits(a.fill_(0.7), b.fill_(0.7)));
    CHECK(same_bits(a.zero_(), b.zero_()));
  }
}

TEST_CASE("long tensors, and all ways to begin and end within eight elements") {
  // More elements than the grid has threads, so that every thread takes several.
  for (DType t : {f16, f32}) {
    const Tensor x = uniform({300007}, -4, 4).to(t), y = x.to(gpu);
    CHECK(same_bits(x * x + 1, y * y + 1));
    CHECK(same_bits((x > 0).to(t), (y > 0).to(t)));
    CHECK(same_bits(x.to(t == f16 ? f32 : f16), y.to(t == f16 ? f32 : f16)));
  }
  const Tensor x = sample({64}, f16), y = x.to(gpu);
  for (std::int64_t begin = 0; begin <= 9; ++begin)
    for (std::int64_t end = 40; end <= 50; ++end) {
      const Tensor a = x.slice(0, begin, end), b = y.slice(0, begin, end);
      CHECK(same_bits(a + 1, b + 1));
      CHECK(same_bits(a * a.to(f32), b * b.to(f32)));
      Tensor whole = zeros({64}, f16, gpu);
      whole.slice(0, begin, end).copy_(b * 2);
      CHECK(same_bits(whole.slice(0, begin, end), a * 2));
      CHECK(same_bits(whole.slice(0, 0, begin), zeros({begin}, f16)));
      CHECK(same_bits(whole.slice(0, end), zeros({64 - end}, f16)));
    }
}

TEST_CASE("tensors of nine dimensions, none of which can be merged") {
  Tensor x = arange(2 * 3 * 2 * 3 * 2 * 3 * 2 * 3 * 2, f32).reshape({2, 3, 2, 3, 2, 3, 2, 3, 2});
  const Shape backwards{8, 7, 6, 5, 4, 3, 2, 1, 0};
  CHECK(same_bits(x.permute(backwards).contiguous(), x.to(gpu).permute(backwards).contiguous()));
  CHECK(same_bits(x.permute(backwards) + x.reshape({2, 3, 2, 3, 2, 3, 2, 3, 2}).permute(backwards) * 2,
                  x.to(gpu).permute(backwards) + x.to(gpu).permute(backwards) * 2));
}

TEST_CASE("numbers take part, whole ones and fractions, on either side") {
  const Tensor x = sample({5}, f16), n = sample({5}, i64);
  CHECK(same_bits(2 / x, 2 / x.to(gpu)));
  CHECK(same_bits(x - 0.1, x.to(gpu) - 0.1));
  CHECK(same_bits(n * 3, n.to(gpu) * 3));
  CHECK(same_bits(n * 0.5, n.to(gpu) * 0.5));
  CHECK(same_bits(where(x > 0, x, 0), where(x.to(gpu) > 0, x.to(gpu), 0)));
  CHECK(same_bits(where(x > 0, 1.5, 0), where(x.to(gpu) > 0, 1.5, 0)));
  Tensor a = x.clone().requires_grad_(), b = x.to(gpu).requires_grad_();
  pow(a, 2).backward(ones_like(a));
  pow(b, 2).backward(ones_like(b));
  CHECK(same_bits(a.grad(), b.grad()));
}

TEST_CASE("operands on different devices are an Error that says where they are") {
  const Tensor x = ones({3}), y = ones({3}, f32, gpu);
  CHECK_THROWS_WITH_AS(x + y, "add: one operand is on cpu, the other on cuda:0; move one with to(Device)", Error);
  CHECK_THROWS_WITH_AS(where(x > 0, y, y), doctest::Contains("where: one operand is on cpu, the other on cuda:0"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor(y).add_(x), doctest::Contains("add_: one operand is on"), Error);
  CHECK_THROWS_WITH_AS(Tensor(2.5).add_(y.select(0, 0)),
                       doctest::Contains("add_: the tensor is on cpu, the operand on"), Error);
  // The seam notices it, too.
  CHECK_THROWS_WITH_AS(backend_for(gpu).copy(y.view_of_data(), zeros({3}).view_of_data()),
                       doctest::Contains("copy: an operand of shape [3] is on cpu"), Error);
  const Tensor number = ones({});
  CHECK_THROWS_WITH_AS(backend_for(gpu).copy(number.view_of_data(), y.select(0, 0).view_of_data()),
                       doctest::Contains("copy: an operand of shape [] is on cpu"), Error);
  CHECK_THROWS_WITH_AS(backend_for(gpu).copy(y.view_of_data(), x.view_of_data()),
                       "copy: an operand of shape [3] is on cpu, expected on cuda:0; move it with to(Device)", Error);
  CHECK_THROWS_WITH_AS(empty({2}, f32, Device::cuda(1000)), doctest::Contains("cuda:1000: there is no such GPU"),
                       Error);
}

TEST_CASE("set_data to another device drops the gradient, which is on the old one") {
  Tensor x = ones({3}).requires_grad_();
  (x * 2).backward(ones({3}));
  CHECK(x.grad().defined());
  x.set_data(x.detach().to(gpu));
  CHECK(x.device() == gpu);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("memory: counted, given back and used again") {
  // Whatever the tests before left is not counted.
  const MemoryStats before = memory_stats(gpu);
  {
    const Tensor x = empty({1000}, f32, gpu);
    CHECK(memory_stats(gpu).live >= before.live + 4000);
    CHECK(memory_stats(gpu).requests == before.requests + 1);
  }
  CHECK(memory_stats(gpu).live == before.live);
  empty_cache(gpu);
  CHECK(memory_stats(gpu).cached == 0);
  reset_peak_memory(gpu);
  CHECK(memory_stats(gpu).peak == memory_stats(gpu).live);
  CHECK_THROWS_WITH_AS(empty({std::int64_t{1} << 50}, f16, gpu),
                       doctest::Contains("out of memory on cuda:0: asked for 2251799813685248 bytes with "), Error);
  CHECK(same_bits(ones({3}, f32, gpu), ones({3})));  // and it goes on
}

TEST_CASE("threads may use the GPU at once") {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (std::size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      const auto value = static_cast<double>(t);
      for (int i = 0; i < 20; ++i) {
        const Tensor x = full({100 + i}, value, f32, gpu) * 2;
        right[t] += x.to_vector<double>() == std::vector<double>(static_cast<std::size_t>(100 + i), 2 * value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 20));
}

TEST_CASE("random numbers are those of the CPU, bit for bit") {
  const auto fill = [](Distribution kind, const Tensor& y, double a, double b) {
    backend_for(y.device()).random(kind, y.view_of_data(), a, b, 7, (std::uint64_t{1} << 40) + 5);
    return y;
  };
  for (DType t : {f16, f32, f64})
    for (std::int64_t n : {1, 3, 4, 5, 1003, 40001})
      for (Distribution kind : {Distribution::uniform, Distribution::normal, Distribution::bernoulli}) {
        const double a = 0.3, b = 2.5;
        CAPTURE(name_of(t));
        CAPTURE(n);
        CAPTURE(static_cast<int>(kind));
        CHECK(same_bits(fill(kind, empty({n}, t), a, b), fill(kind, empty({n}, t, gpu), a, b)));
        // From the second element of a block on, where nothing is aligned.
        CHECK(same_bits(fill(kind, empty({n + 1}, t).slice(0, 1), a, b),
                        fill(kind, empty({n + 1}, t, gpu).slice(0, 1), a, b)));
      }
  // Elements are numbered in row-major order, however they lie; and any dtype can be filled.
  CHECK(same_bits(fill(Distribution::normal, empty({5, 7}).t(), 0, 1),
                  fill(Distribution::normal, empty({5, 7}, f32, gpu).t(), 0, 1)));
  CHECK(same_bits(fill(Distribution::bernoulli, empty({9}, boolean), 0.4, 0),
                  fill(Distribution::bernoulli, empty({9}, boolean, gpu), 0.4, 0)));
  manual_seed(3);
  const Tensor cpu = randn({3, 5}, f16);
  manual_seed(3);
  CHECK(same_bits(cpu, randn({3, 5}, f16, gpu)));
}
