#include "engine/ops/conv.h"
#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

namespace {

struct Case {
  Shape x, w;
  ConvTranspose2dOptions options;
};

// Odd sizes, every option by itself and together; results with pixels that nothing reaches, and with more cut off than
// the kernel adds.
const std::vector<Case> kCases = {
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
    {{2, 3, 5, 7}, {3, 4, 1, 1}, {}},
    {{2, 3, 5, 7}, {3, 4, 3, 2}, {}},
    {{2, 3, 5, 7}, {3, 5, 3, 3}, {.padding = 1}},
    {{2, 17, 4, 3}, {17, 19, 4, 4}, {.stride = 2, .padding = 1}},
    {{2, 3, 1, 1}, {3, 8, 4, 4}, {}},
    {{1, 3, 4, 3}, {3, 2, 1, 2}, {.stride = {3, 4}}},
    {{2, 2, 4, 3}, {2, 3, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}}},
    {{1, 2, 5, 4}, {2, 3, 3, 2}, {.padding = {2, 0}, .dilation = {2, 3}}},
    {{1, 2, 3, 4}, {2, 3, 2, 3}, {.stride = {1, 2}, .output_padding = {2, 3}, .dilation = {3, 4}}},
    {{2, 4, 3, 5}, {4, 3, 3, 3}, {.padding = 1, .groups = 2}},
    {{2, 6, 4, 3}, {6, 1, 4, 3}, {.stride = 2, .padding = {1, 2}, .output_padding = {0, 1}, .groups = 6}},
    {{1, 2, 5, 5}, {2, 3, 2, 2}, {.padding = 2}},
    {{2, 4, 4, 3},
     {4, 2, 3, 2},
     {.stride = {3, 2}, .padding = {2, 1}, .output_padding = {2, 0}, .dilation = {1, 2}, .groups = 2}},
    {{0, 3, 5, 5}, {3, 4, 3, 3}, {}},
};

// PyTorch's formula.
Shape shape_of_y(const Case& k) {
  const ConvTranspose2dOptions& o = k.options;
  const auto size = [&](int d) {
    return (k.x[2 + d] - 1) * o.stride[d] - 2 * o.padding[d] + o.dilation[d] * (k.w[2 + d] - 1) + o.output_padding[d] +
           1;
  };
  return {k.x[0], k.w[1] * o.groups, size(0), size(1)};
}

// The definition: every x is multiplied with the whole filter and added to the result. One call
// f(n, c, i, j, o_in_group, r, s, o, h, w) for each product.
template <class F>
void for_each_product(const Case& k, F f) {
  const Shape y = shape_of_y(k);
  const ConvTranspose2dOptions& opt = k.options;
  for (std::int64_t n = 0; n < k.x[0]; ++n)
    for (std::int64_t c = 0; c < k.x[1]; ++c)
      for (std::int64_t i = 0; i < k.x[2]; ++i)
        for (std::int64_t j = 0; j < k.x[3]; ++j)
          for (std::int64_t o = 0; o < k.w[1]; ++o)
            for (std::int64_t r = 0; r < k.w[2]; ++r)
              for (std::int64_t s = 0; s < k.w[3]; ++s) {
                const std::int64_t h = i * opt.stride.h - opt.padding.h + r * opt.dilation.h;
                const std::int64_t w = j * opt.stride.w - opt.padding.w + s * opt.dilation.w;
                if (h < 0 || h >= y[2] || w < 0 || w >= y[3]) continue;
                f(n, c, i, j, o, r, s, c / (k.x[1] / opt.groups) * k.w[1] + o, h, w);
              }
}

// The most terms that one number of y is the sum of.
double terms_of(const Case& k) { return static_cast<double>(k.w[0] / k.options.groups * k.w[2] * k.w[3]); }

std::string describe(const Case& k) { return "x " + k.x.str() + ", weight " + k.w.str(); }

}  // namespace

TEST_CASE("conv_transpose2d is its definition, for both memory layouts of x and every float dtype") {
  for (DType dtype : {f16, f32, f64})
    for (const Case& k : kCases) {
      CAPTURE(describe(k));
      CAPTURE(std::string(name_of(dtype)));
      const Shape shape = shape_of_y(k);
      const Tensor x = random(k.x, dtype, 1), w = random(k.w, dtype, 2), b = random({shape[1]}, dtype, 3);
      const Array vx(x), vw(w), vb(b);
      Array exact(shape, 0), magnitude = exact;
      for_each_product(k, [&](auto n, auto c, auto i, auto j, auto og, auto r, auto s, auto o, auto h, auto v) {
        const double product = vx({n, c, i, j}) * vw({c, og, r, s});
        exact({n, o, h, v}) += product;
        magnitude({n, o, h, v}) += std::abs(product);
      });
      check_sums(conv_transpose2d(x, w, {}, k.options), exact, magnitude, terms_of(k));
      for (std::size_t i = 0; i < exact.values.size(); ++i) {
        const double bias = vb({static_cast<std::int64_t>(i) / (shape[2] * shape[3]) % shape[1]});
        exact.values[i] += bias;
        magnitude.values[i] += std::abs(bias);
      }
      for (const Tensor& input : {x, x.channels_last()}) {
        const Tensor y = conv_transpose2d(input, w, b, k.options);
        CHECK(y.is_channels_last());
        check_sums(y, exact, magnitude, terms_of(k) + 1);
      }
    }
}

TEST_CASE("conv_transpose2d of known numbers") {
  const Tensor x = tensor({{1, 2}, {3, 4}}).view({1, 1, 2, 2}), w = tensor({{1, 10}, {100, 1000}}).view({1, 1, 2, 2});
  // Every x scales a copy of the kernel; with stride 2 they lie side by side, with stride 1 they overlap.
  check_equal(
      conv_transpose2d(x, w, {}, {.stride = 2}),
      tensor({{1, 10, 2, 20}, {100, 1000, 200, 2000}, {3, 30, 4, 40}, {300, 3000, 400, 4000}}, f32).view({1, 1, 4, 4}));
  check_equal(conv_transpose2d(x, w),
              tensor({{1, 12, 20}, {103, 1234, 2040}, {300, 3400, 4000}}, f32).view({1, 1, 3, 3}));
  // Nothing reaches the rows and columns of the output padding but the bias.
  check_equal(conv_transpose2d(x, ones({1, 1, 1, 1}), tensor({5}, f32), {.stride = 2, .output_padding = 1}),
              tensor({{6, 5, 7, 5}, {5, 5, 5, 5}, {8, 5, 9, 5}, {5, 5, 5, 5}}, f32).view({1, 1, 4, 4}));
}

TEST_CASE("conv_transpose2d is the transpose of conv2d") {
  for (const Case& k : kCases) {
    if (k.x[0] == 0 || k.options.output_padding.h >= k.options.stride.h ||
        k.options.output_padding.w >= k.options.stride.w)
      continue;  // sums of nothing, and sizes at which conv2d has more positions
    CAPTURE(describe(k));
    const Conv2dOptions options{.stride = k.options.stride,
                                .padding = k.options.padding,
                                .dilation = k.options.dilation,
                                .groups = k.options.groups};
    const Tensor y = random(k.x, f64, 1), w = random(k.w, f64, 2), x = random(shape_of_y(k), f64, 3);
    const Tensor convolved = conv2d(x, w, {}, options), transposed = conv_transpose2d(y, w, {}, k.options);
    const double magnitude = inner_product(conv2d(abs(x), abs(w), {}, options), abs(y)).item();
    REQUIRE(magnitude > 0);
    // Both sides sum the same products x*w*y. Each product is rounded twice, and goes through fewer additions than w
    // has elements in the convolution, and fewer than x or y has in the inner product.
    const double additions = static_cast<double>(w.numel() + std::max(x.numel(), y.numel()));
    const double bound = 2 * (2 + additions) * 0x1p-53 * magnitude;
    CHECK(std::abs(inner_product(convolved, y).item() - inner_product(x, transposed).item()) <= bound);
    check_equal(transposed, conv2d_input_gradient(y, w, x.shape(), options));
  }
}

TEST_CASE("conv_transpose2d can be differentiated, and so can its gradients") {
  const std::vector<Case> cases = {
      {{2, 2, 3, 2}, {2, 3, 2, 2}, {}},
      {{1, 4, 2, 3}, {4, 1, 3, 2}, {.stride = 2, .padding = 1, .output_padding = {1, 0}, .groups = 2}},
      {{1, 1, 3, 2}, {1, 2, 2, 2}, {.padding = {1, 0}, .dilation = 2}},
      {{1, 2, 2, 3}, {2, 1, 2, 1}, {.output_padding = {2, 1}, .dilation = {3, 2}}}};
  for (const Case& k : cases) {
    CAPTURE(describe(k));
    const Function f = [&](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2], k.options); };
    const Tensors inputs{random(k.x, f64, 1), random(k.w, f64, 2), random({shape_of_y(k)[1]}, f64, 3)};
    check_gradients(f, inputs);
    check_second_gradients(f, inputs);
  }
}

TEST_CASE("the gradients of conv_transpose2d are their definitions in every float dtype") {
  for (DType dtype : {f16, f32, f64})
    for (const Case& k : kCases) {
      CAPTURE(describe(k));
      CAPTURE(std::string(name_of(dtype)));
      const Shape shape = shape_of_y(k);
      const Tensor x = random(k.x, dtype, 1).requires_grad_(), w = random(k.w, dtype, 2).requires_grad_();
      const Tensor b = random({shape[1]}, dtype, 3).requires_grad_(), dy = random(shape, dtype, 4);
      const Array vx(x.detach()), vw(w.detach()), vdy(dy);
      Array dx(k.x, 0), dw(k.w, 0), db({shape[1]}, 0), dx_magnitude = dx, dw_magnitude = dw, db_magnitude = db;
      for_each_product(k, [&](auto n, auto c, auto i, auto j, auto og, auto r, auto s, auto o, auto h, auto v) {
        const double g = vdy({n, o, h, v}), to_x = g * vw({c, og, r, s}), to_w = g * vx({n, c, i, j});
        dx({n, c, i, j}) += to_x;
        dx_magnitude({n, c, i, j}) += std::abs(to_x);
        dw({c, og, r, s}) += to_w;
        dw_magnitude({c, og, r, s}) += std::abs(to_w);
      });
      for (std::size_t i = 0; i < vdy.values.size(); ++i) {
        const std::int64_t o = static_cast<std::int64_t>(i) / (shape[2] * shape[3]) % shape[1];
        db({o}) += vdy.values[i];
        db_magnitude({o}) += std::abs(vdy.values[i]);
      }
      for (const Tensor& gradient : {dy, dy.channels_last()}) {
        const Tensors found = grad(conv_transpose2d(x, w, b, k.options), {x, w, b}, gradient);
        check_sums(found[0], dx, dx_magnitude, static_cast<double>(k.w[1] * k.w[2] * k.w[3]));
        check_sums(found[1], dw, dw_magnitude, static_cast<double>(k.x[0] * k.x[2] * k.x[3]));
        check_sums(found[2], db, db_magnitude, static_cast<double>(k.x[0] * shape[2] * shape[3]));
      }
    }
}

TEST_CASE("conv_transpose2d reads strided memory and takes an image without a batch") {
  const Tensor x = random({2, 6, 9, 14}, f32, 1).slice(1, 0, 6, 2).slice(3, 0, 14, 2);
  const Tensor w = random({3, 3, 4, 3}, f32, 2).transpose(1, 2).slice(1, 0, 3).transpose(2, 3);
  const Tensor b = random({6}, f32, 3).slice(0, 0, 6, 2);
  const ConvTranspose2dOptions options{.stride = 2, .padding = 1};
  const Tensor dense = conv_transpose2d(x.contiguous(), w.contiguous(), b.contiguous(), options);
  const Array magnitude(conv_transpose2d(abs(x).contiguous(), abs(w).contiguous(), abs(b).contiguous(), options));
  check_sums(conv_transpose2d(x, w, b, options), Array(dense), magnitude, 37);
  const Tensor image = conv_transpose2d(x[0], w, b, options);
  CHECK(image.rank() == 3);
  check_equal(image, conv_transpose2d(x.slice(0, 0, 1), w, b, options)[0]);
}

TEST_CASE("conv_transpose2d of f16 sums in f32 and rounds once, after the bias") {
  CHECK(conv_transpose2d(ones({1, 4096, 1, 1}, f16), ones({4096, 1, 1, 1}, f16)).item() == 4096);
  const Tensor x = tensor({2048, 1}, f16).view({1, 2, 1, 1}), w = ones({2, 1, 1, 1}, f16);
  CHECK(conv_transpose2d(x, w).item() == 2048);  // 2049, a tie: to even
  // 2049.5 lies nearer to 2050; rounded before the bias it would be 2048.
  CHECK(conv_transpose2d(x, w, tensor({0.5}, f16)).item() == 2050);
  // The sum alone is infinite in f16.
  CHECK(conv_transpose2d(full({1, 2, 1, 1}, 65504, f16), w, tensor({-65504}, f16)).item() == 65504);
  // NaN stays within the pixels that it reaches.
  Tensor bad = zeros({1, 1, 2, 2}, f16);
  bad.select(2, 0).select(2, 0).fill_(NAN);
  const auto y = conv_transpose2d(bad, ones({1, 1, 3, 3}, f16), {}, {.stride = 2, .padding = 1}).to_vector<double>();
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % 3 < 2 && i / 3 < 2));
}

TEST_CASE("conv_transpose2d computes the gradients that are wanted and no others") {
  Tensor x = random({1, 1, 3, 3}), w = random({1, 1, 2, 2}).requires_grad_();
  conv_transpose2d(x, w).backward(ones({1, 1, 4, 4}, f64));
  CHECK(w.grad().defined());
  CHECK_FALSE(x.grad().defined());
  Tensor b = zeros({1}, f16).requires_grad_();  // 4096 ones: in f16 the sum would stall at 2048
  conv_transpose2d(ones({1, 1, 64, 64}, f16), ones({1, 1, 1, 1}, f16), b).backward(ones({1, 1, 64, 64}, f16));
  CHECK(b.grad().item() == 4096);
  // dx needs w alone, so that x may change.
  Tensor z = random({1, 1, 3, 3}).requires_grad_();
  const Tensor h = z * 2.0, y = conv_transpose2d(h, w.detach());
  h.detach().zero_();
  check_equal(grad(y, {z}, ones({1, 1, 4, 4}, f64))[0], conv2d(ones({1, 1, 4, 4}, f64), w.detach()) * 2.0);
}

TEST_CASE("conv_transpose2d takes steps far larger than the image") {
  // Were all phases of the stride walked through, this would not end.
  const std::int64_t far = INT32_MAX;
  const Tensor y = conv_transpose2d(ones({1, 1, 1, 1}), ones({1, 1, 1, 2}), {}, {.stride = far, .output_padding = 2});
  check_equal(y, tensor({{1, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, f32).view({1, 1, 3, 4}));
}

TEST_CASE("conv_transpose2d's errors say what does not fit") {
  const Tensor x = ones({1, 4, 5, 5}), w = ones({4, 6, 3, 3});
  const auto message = [](const Tensor& a, const Tensor& weight, const Tensor& bias,
                          const ConvTranspose2dOptions& options) {
    const std::string text = error_of([&] { conv_transpose2d(a, weight, bias, options); });
    CHECK(contains(text, "conv_transpose2d: "));
    return text;
  };
  CHECK(contains(message(ones({4, 5}), w, {}, {}), "expected x [N, C, H, W] and weight [C, O/groups, R, S]"));
  CHECK(contains(message(x, ones({4, 6, 3}), {}, {}), "weight is [4, 6, 3]"));
  CHECK(contains(message(x, ones({3, 6, 3, 3}), {}, {}), "x [1, 4, 5, 5] has 4 channels but weight [3, 6, 3, 3]"));
  CHECK(contains(message(x, w, {}, {.groups = 3}), "groups is 3, expected a divisor of the 4 channels of x"));
  CHECK(contains(message(x, w, {}, {.groups = 0}), "groups is 0"));
  CHECK(contains(message(x, w, ones({5}), {}), "bias is [5], expected [6]"));
  CHECK(contains(message(x, w, ones({6}), {.groups = 2}), "bias is [6], expected [12]"));
  CHECK(contains(message(x.to(f16), w, {}, {}), "x is f16 but weight is f32"));
  CHECK(contains(message(x, w, ones({6}, f16), {}), "x is f32 but bias is f16"));
  CHECK(contains(message(x.to(i32), w, {}, {}), "x is i32"));
  CHECK(contains(message(Tensor(), w, {}, {}), "x is undefined"));
  CHECK(contains(message(x, Tensor(), {}, {}), "weight is undefined"));
  CHECK(contains(message(x, w, {}, {.stride = 0}), "stride 0"));
  CHECK(contains(message(x, w, {}, {.dilation = {1, 0}}), "dilation 0"));
  CHECK(contains(message(x, w, {}, {.padding = -1}), "padding -1"));
  CHECK(contains(message(x, w, {}, {.padding = INT64_MAX}), "at most"));
  CHECK(contains(message(x, w, {}, {.output_padding = 1}),
                 "output_padding is 1, expected at least 0 and less than the stride 1 or the dilation 1"));
  CHECK(contains(message(x, w, {}, {.stride = {3, 2}, .output_padding = 2}), "output_padding is 2"));
  CHECK(contains(message(x, w, {}, {.stride = 2, .output_padding = -1}), "output_padding is -1"));
  CHECK(contains(message(x, w, {}, {.padding = 4}), "the result would have -1 rows or columns, expected 1 to"));
  CHECK(contains(message(x, w, {}, {.stride = INT32_MAX}), "rows or columns, expected 1 to 2147483647"));
  CHECK(contains(message(ones({1, 4, 0, 5}), w, {}, {}), "no rows"));
  CHECK(contains(message(x, ones({4, 6, 0, 3}), {}, {}), "kernel 0"));
  CHECK(contains(message(ones({1, 0, 5, 5}), ones({0, 6, 3, 3}), {}, {}), "at least one channel"));
  const Tensor tall = ones({1, 1, 2, 2}), narrow = ones({1, 1, 1, 1});
  CHECK(contains(error_of([&] { conv_transpose2d(tall, narrow, {}, {.stride = INT32_MAX - 1}); }), "memory"));
}
