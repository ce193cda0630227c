#include "engine/ops/join.h"

#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

TEST_CASE("cat joins along a dimension, promotes dtypes and reads strided inputs") {
  check_equal(cat({tensor({{1, 2}, {3, 4}}), tensor({{5, 6}})}), tensor({{1, 2}, {3, 4}, {5, 6}}));
  check_equal(cat({tensor({{1, 2}, {3, 4}}), tensor({{5}, {6}})}, -1), tensor({{1, 2, 5}, {3, 4, 6}}));
  check_equal(cat({tensor({1}, f16), tensor({2}, f64), tensor({3}, i32)}), tensor({1, 2, 3}, f64));
  check_equal(cat({tensor({1}, boolean), tensor({2}, u8)}), tensor({1, 2}, u8));
  check_equal(cat({tensor({1}, f16), tensor({0.1}, f32)}), tensor({1, 0.1}, f32));
  check_equal(cat({tensor({{1, 2}, {3, 4}}).t(), tensor({{5}, {6}}).expand({2, 2})}, 1),
              tensor({{1, 3, 5, 5}, {2, 4, 6, 6}}));
  check_equal(cat({ones({0, 2}), ones({1, 2}), ones({0, 2})}), ones({1, 2}));
  CHECK(cat({ones({0, 2}), ones({0, 2})}).shape() == Shape{0, 2});
  const Tensor image = random({2, 3, 4, 4}, f16).channels_last();
  const Tensor joined = cat({image, image}, 1);
  CHECK(joined.is_channels_last());
  check_equal(joined.slice(1, 3), image);
}

TEST_CASE("stack adds a dimension") {
  const Tensor a = tensor({1, 2}), b = tensor({3, 4});
  check_equal(stack({a, b}), tensor({{1, 2}, {3, 4}}));
  check_equal(stack({a, b}, 1), tensor({{1, 3}, {2, 4}}));
  check_equal(stack({a, b}, -1), tensor({{1, 3}, {2, 4}}));
  check_equal(stack({tensor({1}).view({}), tensor({2}).view({})}), tensor({1, 2}));
}

TEST_CASE("split and chunk give views") {
  const Tensor x = arange(10.0, 17.0);
  const Tensors parts = split(x, 3);
  REQUIRE(parts.size() == 3);
  check_equal(parts[0], tensor({10, 11, 12}));
  check_equal(parts[2], tensor({16}));
  for (const Tensor& part : parts) CHECK(part.shares_storage(x));
  const Tensors sized = split(x.view({1, 7}), Shape{2, 0, 5}, 1);
  REQUIRE(sized.size() == 3);
  CHECK(sized[1].shape() == Shape{1, 0});
  check_equal(sized[2], tensor({{12, 13, 14, 15, 16}}));
  CHECK(chunk(x, 3).size() == 3);
  CHECK(chunk(x, 3)[0].numel() == 3);
  CHECK(chunk(x, 100).size() == 7);
  CHECK(split(zeros({0}), 2).size() == 1);
  check_equal(cat(chunk(x, 4)), x);
}

TEST_CASE("pad adds a border, and negative numbers crop") {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  check_equal(pad(x, {1, 0}), tensor({{0, 1, 2}, {0, 3, 4}}));
  check_equal(pad(x, {0, 1, 1, 0}, 9), tensor({{9, 9, 9}, {1, 2, 9}, {3, 4, 9}}));
  check_equal(pad(x, {-1, 2}), tensor({{2, 0, 0}, {4, 0, 0}}));
  check_equal(pad(x, {0, -1, -1, 0}), tensor({{3}}));
  check_equal(pad(x, {3, -2}, 7), tensor({{7, 7, 7}, {7, 7, 7}}));
  check_equal(pad(x, {4, -3}, 7), tensor({{7, 7, 7}, {7, 7, 7}}));
  check_equal(pad(x, {}), x);
  check_equal(pad(zeros({0, 2}), {0, 0, 1, 0}, 5), tensor({{5, 5}}));
  CHECK(pad(x, {-2, 0}).shape() == Shape{2, 0});
  for (DType dtype : {f16, f64, i32, i64, u8, boolean})
    check_equal(pad(x.to(dtype), {1, 0}, 1), tensor({{1, 1, 2}, {1, 3, 4}}).to(dtype));
  const Tensor image = random({2, 3, 4, 4}, f16).channels_last();
  CHECK(pad(image, {1, 1, 1, 1}).is_channels_last());
  check_equal(pad(image, {1, 2, 3, 0}).slice(2, 3).slice(3, 1, 5), image);
}

TEST_CASE("flip reverses") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  check_equal(flip(x, {0}), tensor({{4, 5, 6}, {1, 2, 3}}));
  check_equal(flip(x, {-1}), tensor({{3, 2, 1}, {6, 5, 4}}));
  check_equal(flip(x, {0, 1}), tensor({{6, 5, 4}, {3, 2, 1}}));
  check_equal(flip(x, {}), x);
  CHECK_FALSE(flip(x, {}).shares_storage(x));
  check_equal(flip(x.t().to(f16), {0}), tensor({{3, 6}, {2, 5}, {1, 4}}, f16));
  CHECK(flip(zeros({0, 3}), {0, 1}).shape() == Shape{0, 3});
}

TEST_CASE("joining and bordering have first and second gradients") {
  const Tensor a = random({2, 3}), b = random({2, 2}, f64, 2);
  const std::vector<Function> two = {
      [](const Tensors& in) {
        return cat({in[0], in[1], in[0]}, 1);
      },
      [](const Tensors& in) {
        return square(cat({in[0], in[1]}, 1));
      },
      [](const Tensors& in) {
        return stack({in[0].slice(1, 1), in[1]}, 1);
      },
  };
  for (const Function& f : two) {
    check_gradients(f, {a, b});
    check_second_gradients(f, {a, b});
  }
  const std::vector<Function> one = {
      [](const Tensors& in) {
        return pad(in[0], {1, -1, -1, 2}, 5);
      },
      [](const Tensors& in) {
        return pad(in[0], {4, -5, 1, 0}, 5);
      },
      [](const Tensors& in) {
        return flip(in[0], {0, 1});
      },
      [](const Tensors& in) { return split(in[0], 2, 1)[0] * split(in[0], 1, 1)[2]; },
  };
  for (const Function& f : one) {
    check_gradients(f, {a});
    check_second_gradients(f, {a});
  }
}

TEST_CASE("gradients of cat return to each input in its own dtype, and only where wanted") {
  Tensor a = ones({2}, f16).requires_grad_(), b = ones({3}, f32).requires_grad_(), c = ones({1}, f32);
  cat({a, b, c}).backward(tensor({1, 2, 3, 4, 5, 6}));
  check_equal(a.grad(), tensor({1, 2}, f16));
  check_equal(b.grad(), tensor({3, 4, 5}));
  CHECK_FALSE(c.grad().defined());
}

TEST_CASE("joining errors say what does not fit") {
  CHECK(contains(error_of([] { cat({}); }), "no tensors"));
  CHECK(contains(error_of([] { cat({ones({2, 3}), ones({2, 2})}); }), "a tensor is [2, 2] and the first is [2, 3]"));
  CHECK(contains(error_of([] { cat({ones({2, 3}), ones({2})}); }), "a tensor is [2]"));
  CHECK(contains(error_of([] { cat({ones({2, 3})}, 2); }), "cat"));
  CHECK(contains(error_of([] { cat({ones({}), ones({})}); }), "stack"));
  CHECK(contains(error_of([] { cat({ones({2}), Tensor()}); }), "undefined"));
  CHECK(contains(error_of([] { stack({}); }), "no tensors"));
  CHECK(contains(error_of([] { stack({ones({2}), ones({3})}); }), "a tensor is [3] and the first is [2]"));
  CHECK(contains(error_of([] { split(ones({5}), Shape{2, 2}); }), "do not add up to 5"));
  CHECK(contains(error_of([] { split(ones({5}), Shape{7, -2}); }), "do not add up to 5"));
  CHECK(contains(error_of([] { split(ones({5}), 0); }), "size is 0"));
  CHECK(contains(error_of([] { chunk(ones({5}), 0); }), "count is 0"));
  CHECK(contains(error_of([] { pad(ones({5}), {1}); }), "1 numbers of padding"));
  CHECK(contains(error_of([] { pad(ones({5}), {1, 1, 1, 1}); }), "at most 1 dimensions"));
  CHECK(contains(error_of([] { pad(ones({5}), {-3, -3}); }), "below 0"));
  CHECK(contains(error_of([] { pad(ones({5}), {INT64_MAX, 0}); }), "pad"));
  CHECK(error_of([] { pad(ones({1, 1, 1}), Shape(6, INT32_MAX)); }) != "");  // more memory than there is
  CHECK(contains(error_of([] { flip(ones({5}), {1}); }), "flip"));
  CHECK(contains(error_of([] { flip(ones({5}), {0, 0}); }), "flip"));
}
