// What halfgrad does around cuBLAS and cuDNN: which memory they can read, when a bias is rounded, what runs instead of them.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "engine/autograd.h"
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/join.h"
#include "engine/ops/matmul.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

const Device gpu = Device::cuda();

// Small multiples of 1/2: sums of products are exact, in any order.
Tensor halves(const Shape& shape, std::uint64_t seed, DType dtype = f32) {
  return (integers(shape, -2, 3, seed).to(f64) * 0.5).to(dtype);
}

std::vector<double> values(const Tensor& x) { return x.detach().to(Device::cpu()).to_vector<double>(); }

double largest_difference(const Tensor& x, const Tensor& y) {
  REQUIRE(x.shape() == y.shape());
  const std::vector<double> a = values(x), b = values(y);
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i] - b[i])) return a[i] - b[i];
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

// How many blocks of GPU memory f asks for.
template <class F>
std::uint64_t blocks_of(F&& f) {
  const std::uint64_t before = memory_stats(gpu).requests;
  f();
  return memory_stats(gpu).requests - before;
}

}  // namespace

TEST_CASE("a product reads any strides and writes any strides") {
  const std::int64_t B = 3, M = 5, K = 7, N = 4;
  // A tensor [B, rows, columns] whose dimensions lie in this order in memory, every step-th element of the last one.
  const auto lay_out = [](const Shape& shape, const Shape& order, std::int64_t step) {
    Shape memory, back(3, 0);
    for (std::size_t d = 0; d < 3; ++d) {
      memory.push_back(shape[static_cast<std::size_t>(order[d])]);
      back[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
    }
    memory[2] *= step;
    return halves(memory, 5).to(gpu).slice(2, 0, memory[2], step).permute(back);
  };
  const std::vector<Shape> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 0, 1}, {1, 2, 0}};
  const std::vector<Shape> two = {{0, 1, 2}, {0, 2, 1}};  // in rows, in columns
  for (DType dtype : {f16, f32, f64})
    for (const Shape& a_order : orders)
      for (const Shape& b_order : two)
        for (const Shape& c_order : orders)
          for (std::int64_t step : {1, 2})
            for (int form : {0, 1, 2, 3, 4, 5}) {
              const int bias_step = std::array{0, 1, 3}[static_cast<std::size_t>(form % 3)];
              const Activation activation = form < 3 ? Activation::none : Activation::relu;
              const Tensor a = lay_out({B, M, K}, a_order, step).to(dtype),
                           b = lay_out({B, K, N}, b_order, 1).to(dtype);
              const Tensor c = lay_out({B, M, N}, c_order, step).to(dtype);
              const Tensor row = halves({N * std::max(bias_step, 1)}, 7, dtype).to(gpu);
              const Tensor bias = bias_step > 0 ? row.slice(0, 0, row.size(0), bias_step) : Tensor();
              backend_for(gpu).gemm(c.view_of_data(), a.view_of_data(), b.view_of_data(),
                                    bias.defined() ? bias.view_of_data() : View{}, activation);
              Tensor expected = matmul(a.to(Device::cpu()), b.to(Device::cpu()));
              if (bias.defined()) expected = expected + bias.to(Device::cpu());
              if (activation == Activation::relu) expected = relu(expected);
              CHECK(values(c) == values(expected));
            }
}

TEST_CASE("an activation in a library's call is that of the op: 0 for what is negative, and NaN stays NaN") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (DType dtype : {f16, f32, f64}) {
    // One product for each row, with 1.
    const Tensor x = from_vector(std::vector<double>{-inf, -2, 0, 3, inf, nan}, {6, 1}).to(dtype).to(gpu);
    const Tensor one = ones({1, 1}, dtype, gpu), images = x.reshape({6, 1, 1, 1}),
                 filter = ones({1, 1, 1, 1}, dtype, gpu);
    for (const Tensor& bias : {Tensor(), zeros({1}, dtype, gpu)}) {
      const auto of_linear = linear(x, one, bias, Activation::relu).to(f64).to_vector<double>();
      const auto of_conv2d = conv2d(images, filter, bias, {}, Activation::relu).to(f64).to_vector<double>();
      for (const std::vector<double>& y : {of_linear, of_conv2d}) {
        CHECK(std::vector(y.begin(), y.begin() + 5) == std::vector<double>{0, 0, 0, 3, inf});
        CHECK(std::isnan(y[5]));
      }
    }
  }
}

TEST_CASE("matrices that cuBLAS can address are not copied") {
  const Tensor a = halves({6, 8}, 1, f16).to(gpu), b = halves({6, 5}, 2, f16).to(gpu),
               x = halves({4, 6, 8}, 3, f16).to(gpu);
  matmul(a.t(), b);                                                                // sets up cuBLAS
  CHECK(blocks_of([&] { matmul(a.t(), b); }) == 1);                                // the result
  CHECK(blocks_of([&] { matmul(a.slice(1, 2, 6), a.slice(1, 2, 6).t()); }) == 1);  // a part of each row
  CHECK(blocks_of([&] { matmul(x.transpose(1, 2), b); }) == 1);                    // one b for all
  CHECK(blocks_of([&] { matmul(x.transpose(0, 1), x.permute({1, 2, 0})); }) == 1);
  CHECK(blocks_of([&] { matmul(a.slice(1, 0, 8, 2), b.slice(0, 0, 4)); }) == 2);  // every second column
}

TEST_CASE("a convolution in channels-last order copies nothing but its filters") {
  const Tensor x = arrange_in(halves({2, 8, 6, 6}, 1, f16).to(gpu), Layout::channels_last);
  const Tensor w = halves({4, 8, 3, 3}, 2, f16).to(gpu), last = arrange_in(w, Layout::channels_last);
  const Tensor bias = halves({4}, 3, f16).to(gpu);
  CHECK(conv2d(x, w, bias).strides() == Strides{64, 1, 16, 4});
  const std::uint64_t in_order = blocks_of([&] { conv2d(x, last, bias); });  // the result, and what cuDNN asks for
  CHECK(in_order <= 2);
  CHECK(blocks_of([&] { conv2d(x, w, bias); }) == in_order + 1);
  CHECK(blocks_of([&] { conv2d(x.contiguous(), w, bias); }) == in_order + 3);  // contiguous() itself is one
}

TEST_CASE("a bias is added before the result is rounded") {
  // 1 + 2^-11 lies in the middle of two halves and would be rounded to 1, and then 1 + 2^-12, too.
  const double eps = std::ldexp(1, -11), expected = 1 + 2 * eps;
  const Tensor bias = full({2}, eps / 2, f16, gpu);
  const auto x_of = [&](const Shape& shape) {  // 1 and eps in turn, along dimension 1
    return cat({ones(shape, f16, gpu), full(shape, eps, f16, gpu)}, 1);
  };
  CHECK(values(linear(x_of({1, 1}), ones({2, 2}, f16, gpu), bias)) == std::vector<double>(2, expected));
  const Tensor image = x_of({1, 1, 1, 1}), filters = ones({2, 2, 1, 1}, f16, gpu);
  CHECK(values(conv2d(image, filters, bias)) == std::vector<double>(2, expected));
  CHECK(values(conv_transpose2d(image, filters, bias)) == std::vector<double>(2, expected));
  // In two groups, each of which sees one pair.
  const Tensor twice = cat({image, image}, 1);
  CHECK(values(conv2d(twice, filters, bias, {.groups = 2})) == std::vector<double>(2, expected));
  CHECK(values(conv_transpose2d(twice, ones({4, 1, 1, 1}, f16, gpu), bias, {.groups = 2})) ==
        std::vector<double>(2, expected));
}

// The statistics of many positions, which are summed in chunks. Our own kernels run when there are no parameters, in f64 and
// with parameters in f16, cuDNN with parameters in f32.
TEST_CASE("batch normalisation over many positions and channels, with a mean that is large") {
  for (const Shape& shape : {Shape{4, 3, 70, 90}, Shape{2, 40, 20, 20}, Shape{300, 70}})
    for (Layout layout : {Layout::plain, Layout::channels_last})
      for (DType dtype : {f64, f32, f16})
        for (bool with_parameters : {false, true}) {
          if (layout == Layout::channels_last && shape.rank() != 4) continue;
          CAPTURE(shape.str());
          CAPTURE(name_of(layout));
          CAPTURE(halfgrad::name_of(dtype));
          CAPTURE(with_parameters);
          // Exact in f16, and about 100 times its deviation from 0.
          const Tensor x = arrange_in(halves(shape, 1, f64) + 100, layout), dy = halves(shape, 2, f64);
          const DType of_parameters = dtype == f64 ? f64 : f32;
          const Tensor weight = halves({shape[1]}, 3, f64) + 2, bias = halves({shape[1]}, 4, f64);
          // Seam by seam: running statistics and sums of gradients are other kernels' work.
          const auto run = [&](DType type, DType parameters, Device device) {
            const auto to = [&](const Tensor& t, DType its) { return t.to(its).to(device); };
            const std::int64_t positions = shape.numel() / shape[0] / shape[1];
            const auto view = [&](const Tensor& t) {
              View v = t.view_of_data();
              v.strides = {v.strides[0], v.strides[1], shape.rank() == 2 ? 1 : v.strides[shape.size() - 1]};
              v.shape = {shape[0], shape[1], positions};
              return v;
            };
            const Tensor input = to(x, type), gradient = empty_like(input).copy_(to(dy, type)), y = empty_like(input),
                         dx = empty_like(input);
            const Tensor w = with_parameters ? to(weight, parameters) : Tensor();
            const Tensor b = with_parameters ? to(bias, parameters) : Tensor();
            const DType compute = compute_dtype(type);
            const Tensor mean = empty({shape[1]}, compute, device), rstd = empty({shape[1]}, compute, device);
            const auto view_or = [](const Tensor& t) { return t.defined() ? t.view_of_data() : View{}; };
            const Tensor dw = with_parameters ? empty_like(w) : Tensor(),
                         db = with_parameters ? empty_like(b) : Tensor();
            Backend& backend = backend_for(device);
            backend.batch_norm(view(y), mean.view_of_data(), rstd.view_of_data(), view(input), view_or(w), view_or(b),
                               1e-5, Activation::none);
            backend.batch_norm_backward(view(dx), view_or(dw), view_or(db), view(gradient), view(input),
                                        mean.view_of_data(), rstd.view_of_data(), view_or(w), view_or(b), true,
                                        Activation::none);
            return Tensors{y, mean, rstd, dx, dw, db};
          };
          const Tensors exact = run(f64, f64, Device::cpu()), found = run(dtype, of_parameters, gpu);
          // A mean is the sum of at most 64 numbers per thread, which are combined in at most 8 steps, each rounded: it is
          // off by 72 u of 101, u = 2^-24, and what is made of its distance to x by as many u of 101 times 1/deviation <= 2
          // and weight <= 3. Sums of n gradients that are at most 1 are off by 72 u n. f16 is rounded once more, at 8.
          const double u = dtype == f64 ? std::ldexp(1, -53) : std::ldexp(1, -24);
          const double once_more = dtype == f16 ? std::ldexp(8, -11) : 0;
          const double n = static_cast<double>(shape.numel() / shape[1]);
          CHECK(largest_difference(found[0], exact[0]) <= 72 * u * 101 * 6 + once_more);
          CHECK(largest_difference(found[1], exact[1]) <= 72 * u * 101);
          CHECK(largest_difference(found[2], exact[2]) <= 72 * u * 101 * 6);
          CHECK(largest_difference(found[3], exact[3]) <= 72 * u * 101 * 36 + once_more);
          if (!with_parameters) continue;
          CHECK(largest_difference(found[4], exact[4]) <= 72 * u * n * 101 * 6);
          CHECK(largest_difference(found[5], exact[5]) <= 72 * u * n);
        }
}

TEST_CASE("pools of many elements agree with the CPU's, bit for bit where the kernels are our own") {
  for (Layout layout : {Layout::plain, Layout::channels_last, Layout::sliced})
    for (DType dtype : {f64, f32, f16}) {
      CAPTURE(name_of(layout));
      CAPTURE(halfgrad::name_of(dtype));
      const Tensor x = arrange_in(uniform({2, 5, 33, 30}).to(dtype), layout).detach();
      const auto run = [&](const auto& pool, Device device) {
        const Tensor input = x.to(device).detach().requires_grad_();
        const Tensor y = pool(input);
        y.backward(uniform(y.shape(), -1, 1, 7).to(dtype).to(device));
        return std::pair{values(y), values(input.grad())};
      };
      const auto largest = [](const Tensor& t) { return max_pool2d(t, {5, 3}, {.stride = {1, 2}, .padding = {2, 1}}); };
      CHECK(run(largest, gpu) == run(largest, Device::cpu()));
      const auto dilated = [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 2, .dilation = {4, 2}}); };
      CHECK(run(dilated, gpu) == run(dilated, Device::cpu()));
      const auto adaptive = [](const Tensor& t) { return adaptive_avg_pool2d(t, {7, 31}); };
      CHECK(run(adaptive, gpu) == run(adaptive, Device::cpu()));
    }
}

TEST_CASE("a maximum that all windows choose gets the sum of their gradients, in f32") {
  // 25 windows, each with a gradient of 2048 + 2: in f16 the sum would lose some.
  Tensor x = zeros({1, 1, 9, 9}, f16);
  x.slice(2, 4, 5).slice(3, 4, 5).fill_(1);
  Tensor input = x.to(gpu).requires_grad_();
  const Tensor y = max_pool2d(input, 5, {.stride = 1});
  y.backward(full(y.shape(), 2050, f16, gpu));
  CHECK(values(input.grad())[4 * 9 + 4] == 51264);  // 25 * 2050 = 51250, in steps of 32
}

TEST_CASE("whatever is computed twice has the same bits") {
  const Tensor x = uniform({4, 6, 9, 9}).to(f16).to(gpu), w = uniform({8, 6, 3, 3}).to(f16).to(gpu);
  const Tensor dy = uniform({4, 8, 7, 7}).to(f16).to(gpu), a = uniform({70, 90}).to(gpu);
  const std::vector<std::function<Tensor()>> all = {
      [&] { return matmul(a, a.t()); },
      [&] { return conv2d(x, w); },
      [&] { return conv2d_input_gradient(dy, w, x.shape()); },
      [&] { return conv2d_weight_gradient(x, dy, w.shape()); },
      [&] { return avg_pool2d(x, 3); },
  };
  for (const auto& f : all) CHECK(values(f()) == values(f()));
}

TEST_CASE("threads use the libraries at once") {
  const Tensor a = halves({9, 8}, 1).to(gpu), image = halves({2, 3, 6, 6}, 2, f16).to(gpu);
  const Tensor w = halves({4, 3, 3, 3}, 3, f16).to(gpu), bias = halves({9}, 4).to(gpu);
  const std::vector<double> product = values(linear(a, a, bias)), convolved = values(conv2d(image, w));
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (int& count : right)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i)
        count += values(linear(a, a, bias)) == product && values(conv2d(image, w)) == convolved;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 10));
}
