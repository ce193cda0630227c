#include "engine/ops/conv.h"

#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

namespace {

struct Case {
  Shape x, w;
  Conv2dOptions options;
};

// Odd sizes, every option by itself and together, and windows that do not fill the input.
const std::vector<Case> kCases = {
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{2, 3, 5, 7}, {4, 3, 1, 1}, {}},
    {{2, 3, 5, 7}, {4, 3, 3, 3}, {}},
    {{2, 3, 5, 7}, {5, 3, 3, 3}, {.padding = 1}},
    {{1, 17, 9, 8}, {19, 17, 3, 3}, {.padding = 1}},
    {{2, 3, 8, 7}, {4, 3, 3, 2}, {.stride = 2}},
    {{2, 3, 8, 7}, {4, 3, 3, 3}, {.stride = {2, 3}, .padding = {1, 2}}},
    {{1, 2, 9, 9}, {3, 2, 3, 3}, {.padding = 2, .dilation = 2}},
    {{1, 2, 9, 10}, {3, 2, 3, 2}, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {2, 3}}},
    {{2, 4, 5, 5}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
    {{2, 4, 6, 5}, {4, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 4}},
    {{1, 2, 4, 4}, {3, 2, 4, 4}, {}},
    {{1, 2, 2, 2}, {3, 2, 3, 3}, {.padding = 4}},
    {{0, 3, 5, 5}, {4, 3, 3, 3}, {}},
};

// The sums of the definition: one call f(n, o, oh, ow, c, h, w, r, s, c_in_group) for each product.
template <class F>
void for_each_product(const Case& k, const Shape& y, F f) {
  const std::int64_t in_group = k.w[1], out_group = k.w[0] / k.options.groups;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t o = 0; o < y[1]; ++o)
      for (std::int64_t oh = 0; oh < y[2]; ++oh)
        for (std::int64_t ow = 0; ow < y[3]; ++ow)
          for (std::int64_t c = 0; c < in_group; ++c)
            for (std::int64_t r = 0; r < k.w[2]; ++r)
              for (std::int64_t s = 0; s < k.w[3]; ++s) {
                const std::int64_t h = oh * k.options.stride.h - k.options.padding.h + r * k.options.dilation.h;
                const std::int64_t w = ow * k.options.stride.w - k.options.padding.w + s * k.options.dilation.w;
                if (h < 0 || h >= k.x[2] || w < 0 || w >= k.x[3]) continue;
                f(n, o, oh, ow, o / out_group * in_group + c, h, w, c, r, s);
              }
}

Shape shape_of_y(const Case& k) {
  const auto positions = [&](int axis) {
    const Conv2dOptions& o = k.options;
    return (k.x[2 + axis] + 2 * o.padding[axis] - o.dilation[axis] * (k.w[2 + axis] - 1) - 1) / o.stride[axis] + 1;
  };
  return {k.x[0], k.w[0], positions(0), positions(1)};
}

std::string describe(const Case& k) { return "x " + k.x.str() + ", weight " + k.w.str(); }

}  // namespace

TEST_CASE("conv2d is its definition, for both memory layouts of x and every float dtype") {
  for (DType dtype : {f16, f32, f64})
    for (const Case& k : kCases) {
      CAPTURE(describe(k));
      CAPTURE(std::string(name_of(dtype)));
      const Tensor x = random(k.x, dtype, 1), w = random(k.w, dtype, 2), b = random({k.w[0]}, dtype, 3);
      const Array vx(x), vw(w), vb(b);
      Array exact(shape_of_y(k), 0), magnitude = exact;
      for_each_product(k, exact.shape,
                       [&](auto n, auto o, auto oh, auto ow, auto c, auto h, auto ww, auto cg, auto r, auto s) {
                         const double product = vx({n, c, h, ww}) * vw({o, cg, r, s});
                         exact({n, o, oh, ow}) += product;
                         magnitude({n, o, oh, ow}) += std::abs(product);
                       });
      const double terms = static_cast<double>(k.w[1] * k.w[2] * k.w[3]);
      check_sums(conv2d(x, w, {}, k.options), exact, magnitude, terms);
      for (std::size_t i = 0; i < exact.values.size(); ++i) {
        const std::int64_t plane = exact.shape[2] * exact.shape[3];
        const double bias = vb({static_cast<std::int64_t>(i) / plane % k.w[0]});
        exact.values[i] += bias;
        magnitude.values[i] += std::abs(bias);
      }
      for (const Tensor& input : {x, x.channels_last()}) {
        const Tensor y = conv2d(input, w, b, k.options);
        CHECK(y.is_channels_last());
        check_sums(y, exact, magnitude, terms + 1);
      }
    }
}

TEST_CASE("the gradients of conv2d are their definitions in every float dtype") {
  for (DType dtype : {f16, f32, f64})
    for (const Case& k : kCases) {
      CAPTURE(describe(k));
      CAPTURE(std::string(name_of(dtype)));
      const Tensor x = random(k.x, dtype, 1), w = random(k.w, dtype, 2), dy = random(shape_of_y(k), dtype, 3);
      const Array vx(x), vw(w), vdy(dy);
      Array dx(k.x, 0), dw(k.w, 0), dx_magnitude = dx, dw_magnitude = dw;
      for_each_product(
          k, dy.shape(), [&](auto n, auto o, auto oh, auto ow, auto c, auto h, auto ww, auto cg, auto r, auto s) {
            const double g = vdy({n, o, oh, ow}), to_x = g * vw({o, cg, r, s}), to_w = g * vx({n, c, h, ww});
            dx({n, c, h, ww}) += to_x;
            dx_magnitude({n, c, h, ww}) += std::abs(to_x);
            dw({o, cg, r, s}) += to_w;
            dw_magnitude({o, cg, r, s}) += std::abs(to_w);
          });
      for (const Tensor& gradient : {dy, dy.channels_last()}) {
        check_sums(conv2d_input_gradient(gradient, w, k.x, k.options), dx, dx_magnitude,
                   static_cast<double>(k.w[0] / k.options.groups * k.w[2] * k.w[3]));
        for (const Tensor& input : {x, x.channels_last()})
          check_sums(conv2d_weight_gradient(input, gradient, k.w, k.options), dw, dw_magnitude,
                     static_cast<double>(dy.numel() / k.w[0]));
      }
    }
}

TEST_CASE("conv2d can be differentiated, and so can its gradients") {
  const std::vector<Case> cases = {{{2, 2, 4, 3}, {3, 2, 2, 2}, {}},
                                   {{1, 2, 5, 5}, {2, 1, 3, 2}, {.stride = 2, .padding = 1, .groups = 2}},
                                   {{1, 1, 5, 4}, {2, 1, 2, 2}, {.padding = {1, 0}, .dilation = 2}}};
  for (const Case& k : cases) {
    CAPTURE(describe(k));
    const Function f = [&](const Tensors& in) { return conv2d(in[0], in[1], in[2], k.options); };
    const Tensors inputs{random(k.x, f64, 1), random(k.w, f64, 2), random({k.w[0]}, f64, 3)};
    check_gradients(f, inputs);
    check_second_gradients(f, inputs);
    const Tensor dy = random(shape_of_y(k), f64, 4);
    const Function to_x = [&](const Tensors& in) { return conv2d_input_gradient(in[0], in[1], k.x, k.options); };
    const Function to_w = [&](const Tensors& in) { return conv2d_weight_gradient(in[0], in[1], k.w, k.options); };
    check_second_gradients(to_x, {dy, inputs[1]});
    check_second_gradients(to_w, {inputs[0], dy});
  }
}

TEST_CASE("conv2d reads strided memory and takes an image without a batch") {
  const Tensor x = random({2, 6, 9, 14}, f32, 1).slice(1, 0, 6, 2).slice(3, 0, 14, 2);
  const Tensor w = random({3, 3, 4, 3}, f32, 2).transpose(1, 2).slice(1, 0, 3).transpose(2, 3);
  const Tensor dense = conv2d(x.contiguous(), w.contiguous());
  const Array magnitude(conv2d(abs(x).contiguous(), abs(w).contiguous()));
  check_sums(conv2d(x, w), Array(dense), magnitude, 36);
  const Tensor image = conv2d(x[0], w);
  CHECK(image.rank() == 3);
  check_equal(image, conv2d(x.slice(0, 0, 1), w)[0]);
}

TEST_CASE("conv2d computes the gradients that are wanted and no others") {
  Tensor x = random({1, 1, 3, 3}), w = random({1, 1, 2, 2}).requires_grad_();
  conv2d(x, w).backward(ones({1, 1, 2, 2}, f64));
  CHECK(w.grad().defined());
  CHECK_FALSE(x.grad().defined());
  Tensor b = zeros({1}, f16).requires_grad_();  // 4096 ones: in f16 the sum would stall at 2048
  conv2d(ones({1, 1, 64, 64}, f16), ones({1, 1, 1, 1}, f16), b).backward(ones({1, 1, 64, 64}, f16));
  CHECK(b.grad().item() == 4096);
}

TEST_CASE("an input whose value no gradient needs may be changed after the forward") {
  const Tensor x = random({1, 1, 3, 3}).requires_grad_(), w = random({1, 1, 2, 2}), dy = ones({1, 1, 2, 2}, f64);
  const Tensor h = x * 2.0, y = conv2d(h, w);
  h.detach().zero_();  // dx needs w alone
  check_equal(grad(y, {x}, dy)[0], conv2d_input_gradient(dy, w, x.shape()) * 2.0);
}

TEST_CASE("conv2d of f16 sums in f32") {
  CHECK(conv2d(ones({1, 1, 64, 64}, f16), ones({1, 1, 64, 64}, f16)).item() == 4096);
  const Tensor large = tensor({65504, 65504, -65504}, f16).view({1, 3, 1, 1});
  CHECK(conv2d(large, ones({1, 3, 1, 1}, f16)).item() == 65504);
  CHECK(conv2d(full({1, 3, 1, 1}, 0x1p-24, f16), ones({1, 3, 1, 1}, f16)).item() == 3 * 0x1p-24);
  // NaN stays within the windows that see it, padding included.
  Tensor x = ones({1, 1, 3, 3}, f16);
  x.select(2, 0).select(2, 0).fill_(NAN);
  const auto y = conv2d(x, ones({1, 1, 2, 2}, f16), {}, {.padding = 1}).to_vector<double>();
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % 4 < 2 && i / 4 < 2));
}

TEST_CASE("conv2d's errors say what does not fit") {
  const Tensor x = ones({1, 4, 5, 5}), w = ones({6, 4, 3, 3});
  CHECK(contains(error_of([&] { conv2d(ones({4, 5}), w); }), "expected x [N, C, H, W]"));
  CHECK(contains(error_of([&] { conv2d(x, ones({6, 3, 3, 3})); }), "weight [6, 3, 3, 3] expects 3"));
  CHECK(contains(error_of([&] { conv2d(x, w, {}, {.groups = 3}); }), "groups is 3"));
  CHECK(contains(error_of([&] { conv2d(x, w, {}, {.groups = 0}); }), "groups is 0"));
  CHECK(contains(error_of([&] { conv2d(x, w, ones({5})); }), "bias is [5], expected [6]"));
  CHECK(contains(error_of([&] { conv2d(x.to(f16), w); }), "x is f16 but weight is f32"));
  CHECK(contains(error_of([&] { conv2d(x.to(i32), w); }), "x is i32"));
  CHECK(contains(error_of([&] { conv2d(x, ones({6, 4, 7, 7})); }), "the kernel covers 7 positions"));
  CHECK(contains(error_of([&] { conv2d(x, w, {}, {.stride = 0}); }), "stride 0"));
  CHECK(contains(error_of([&] { conv2d(x, w, {}, {.padding = -1}); }), "padding -1"));
  CHECK(contains(error_of([&] { conv2d(x, w, {}, {.padding = INT64_MAX}); }), "at most"));
  CHECK(contains(error_of([&] { conv2d(ones({1, 4, 0, 5}), w); }), "no rows"));
  CHECK(contains(error_of([&] { conv2d(ones({1, 0, 5, 5}), ones({6, 0, 3, 3})); }), "at least one channel"));
  CHECK(contains(error_of([&] { conv2d_input_gradient(ones({1, 6, 4, 4}), w, x.shape()); }), "dy is [1, 6, 4, 4]"));
  CHECK(contains(error_of([&] { conv2d_weight_gradient(x, ones({1, 6, 4, 4}), w.shape()); }), "gives [1, 6, 3, 3]"));
}
