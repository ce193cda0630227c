#include "engine/ops/index.h"

#include "tests/ops/reference.h"

using namespace halfgrad;
using namespace halfgrad::reference;

namespace {

const std::vector<DType> kAllDTypes = {f16, f32, f64, i32, i64, u8, boolean};

}  // namespace

TEST_CASE("gather reads where the index says, in every dtype and from any strides") {
  const Tensor base = random({4, 6, 5}, f64) * 10.0;
  for (DType dtype : kAllDTypes)
    for (int dim : {0, 1, 2, -1}) {
      const Tensor dense = base.to(dtype);
      Shape shape{4, 6, 5};
      shape[static_cast<std::size_t>(dim < 0 ? 2 : dim)] = 7;
      shape[dim == 0 ? 1 : 0] -= 1;  // smaller than x elsewhere
      const Tensor index = random_index(shape, dense.size(dim));
      const Array values(dense), at(index);
      Array expected(shape, 0);
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j)
          for (std::int64_t k = 0; k < shape[2]; ++k) {
            const auto p = static_cast<std::int64_t>(at({i, j, k}));
            expected({i, j, k}) = dim == 0 ? values({p, j, k}) : dim == 1 ? values({i, p, k}) : values({i, j, p});
          }
      for (const Tensor& x : {dense, dense.permute({2, 0, 1}).contiguous().permute({1, 2, 0})}) {
        const Tensor y = gather(x, dim, index);
        CHECK(y.dtype() == dtype);
        CHECK(y.shape() == shape);
        CHECK(y.to_vector<double>() == expected.values);
        CHECK(gather(x, dim, index.to(i32)).to_vector<double>() == expected.values);
      }
    }
}

TEST_CASE("index_select takes slices in the order of the index") {
  for (DType dtype : kAllDTypes) {
    const Tensor dense = (random({5, 3, 4}, f64) * 10.0).to(dtype);
    for (const Tensor& x : {dense, dense.permute({2, 0, 1}).contiguous().permute({1, 2, 0}), dense.slice(2, 0, 4, 2),
                            dense.slice(0, 0, 1).expand({5, 3, 4})})
      for (int dim : {0, 1, 2}) {
        const Tensor index = random_index({7}, x.size(dim));
        const Tensor y = index_select(x, dim, index);
        REQUIRE(y.size(dim) == 7);
        for (std::int64_t i = 0; i < 7; ++i)
          check_equal(y.select(dim, i), x.select(dim, index[i].item<std::int64_t>()));
      }
  }
  CHECK(index_select(ones({3, 2}), 0, zeros({0}, i64)).shape() == Shape{0, 2});
  CHECK(index_select(ones({3, 0}), 0, zeros({4}, i64)).shape() == Shape{4, 0});
  const Tensor image = random({5, 3, 2, 2}, f16).channels_last();
  const Tensor picked = index_select(image, 0, tensor({4, 0}, i64));
  CHECK(picked.is_channels_last());
  check_equal(picked[0], image[4]);
}

TEST_CASE("scatter_add and index_add add, repeated indices included, and leave x alone") {
  for (DType dtype : {f32, f64, i32, i64, u8}) {
    const Tensor x = arange(0, 6, 1, dtype).view({3, 2});
    check_equal(scatter_add(x, 0, tensor({{0, 2}, {0, 2}, {1, 0}, {0, 2}}, i64), ones({4, 2}, dtype)),
                tensor({{3, 2}, {3, 3}, {4, 8}}, dtype));
    check_equal(scatter_add(x, 1, tensor({{1, 1, 1}, {0, 1, 0}}, i64), ones({2, 3}, dtype)),
                tensor({{0, 4}, {4, 4}, {4, 5}}, dtype));
    check_equal(index_add(x, 0, tensor({2, 0, 2}, i32), full({3, 2}, 10, dtype)),
                tensor({{10, 11}, {2, 3}, {24, 25}}, dtype));
    check_equal(index_add(x, 1, tensor({1, 1}, i64), full({3, 2}, 1, dtype)), tensor({{0, 3}, {2, 5}, {4, 7}}, dtype));
    check_equal(index_add(x.t(), 0, tensor({1, 1}, i64), full({3, 2}, 1, dtype).t()),
                tensor({{0, 2, 4}, {3, 5, 7}}, dtype));
    check_equal(x, arange(0, 6, 1, dtype).view({3, 2}));
  }
  check_equal(index_add(ones({2, 2}), 0, zeros({0}, i64), ones({0, 2})), ones({2, 2}));
}

TEST_CASE("sums into f16 are made in f32 and rounded once") {
  // In f16 they would stall at 2048, and the second would overflow on the way.
  CHECK(index_add(zeros({1}, f16), 0, zeros({4096}, i64), ones({4096}, f16)).item() == 4096);
  CHECK(scatter_add(full({1}, 65504, f16), 0, zeros({2}, i64), tensor({65504, -65504}, f16)).item() == 65504);
  CHECK(index_add(zeros({1}, f16), 0, zeros({3}, i64), full({3}, 0x1p-24, f16)).item() == 3 * 0x1p-24);
  // Many rows and columns, against f64.
  const Tensor index = random_index({301}, 17), src = random({301, 67}, f16);
  Array exact({17, 67}, 0), magnitude = exact;
  const Array values(src), at(index);
  for (std::int64_t i = 0; i < 301; ++i)
    for (std::int64_t j = 0; j < 67; ++j) {
      exact({static_cast<std::int64_t>(at({i})), j}) += values({i, j});
      magnitude({static_cast<std::int64_t>(at({i})), j}) += std::abs(values({i, j}));
    }
  check_sums(index_add(zeros({17, 67}, f16), 0, index, src), exact, magnitude, 301);
  check_sums(scatter_add(zeros({17, 67}, f16), 0, index.unsqueeze(1).expand({301, 67}), src), exact, magnitude, 301);
  check_sums(scatter_add(zeros({17, 67}, f16), 0, index.unsqueeze(1).expand({301, 67}).contiguous(), src), exact,
             magnitude, 301);
}

TEST_CASE("reading and adding at an index have first and second gradients") {
  const Tensor x = random({3, 4}), src = random({5, 4}, f64, 2);
  const Tensor rows = tensor({2, 0, 2, 1, 2}, i64), index = random_index({5, 4}, 3);
  const std::vector<Function> functions = {
      [&](const Tensors& in) { return gather(in[0], 0, index); },
      [&](const Tensors& in) { return index_select(in[0], 0, rows); },
      [&](const Tensors& in) {
        return embedding(rows.view({1, 5}), in[0]);
      },
      [&](const Tensors& in) { return square(index_select(in[0], 0, rows)); },
  };
  for (const Function& f : functions) {
    check_gradients(f, {x});
    check_second_gradients(f, {x});
  }
  const std::vector<Function> sums = {
      [&](const Tensors& in) { return scatter_add(in[0], 0, index, in[1]); },
      [&](const Tensors& in) { return index_add(in[0], 0, rows, in[1]); },
  };
  for (const Function& f : sums) {
    check_gradients(f, {x, src});
    check_second_gradients(f, {x, src});
  }
}

TEST_CASE("embedding looks rows up; its padding row gets no gradient, not even NaN") {
  for (DType dtype : {f16, f32, f64}) {
    Tensor weight = random({5, 3}, dtype).requires_grad_();
    const Tensor indices = tensor({{1, 4}, {1, 0}}, i64);
    const Tensor y = embedding(indices, weight, 4);
    CHECK(y.shape() == Shape{2, 2, 3});
    check_equal(y[0][1].detach(), weight[4].detach());
    check_equal(y[1][0].detach(), weight[1].detach());
    Tensor dy = ones({2, 2, 3}, dtype);
    dy.select(0, 0).select(0, 1).fill_(NAN);
    y.backward(dy);
    check_equal(weight.grad(), tensor({{1, 1, 1}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, dtype));
  }
  CHECK(embedding(tensor({2}, i32).view({}), ones({3, 4})).shape() == Shape{4});
  CHECK(embedding(zeros({0}, i64), ones({3, 4})).shape() == Shape{0, 4});
}

TEST_CASE("one_hot marks the class") {
  check_equal(one_hot(tensor({2, 0}, i64), 4), tensor({{0, 0, 1, 0}, {1, 0, 0, 0}}, i64));
  check_equal(one_hot(tensor({2, 0}, i32)), tensor({{0, 0, 1}, {1, 0, 0}}, i64));
  CHECK(one_hot(zeros({2, 3}, i64), 5).shape() == Shape{2, 3, 5});
  CHECK(one_hot(zeros({0}, i64), 5).shape() == Shape{0, 5});
}

TEST_CASE("an index is checked before anything is read: the error names op, value and range") {
  const Tensor x = ones({3, 2});
  const auto has_all = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      if (!contains(text, part)) return false;
    return true;
  };
  CHECK(has_all(error_of([&] { index_select(x, 0, tensor({0, 3}, i64)); }), {"index_select", "index 3", "[0, 3)"}));
  CHECK(has_all(error_of([&] { index_select(x, 1, tensor({-1}, i32)); }), {"index_select", "index -1", "[0, 2)"}));
  CHECK(has_all(error_of([&] { gather(x, 1, tensor({{2}}, i64)); }), {"gather", "index 2", "[0, 2)"}));
  CHECK(has_all(error_of([&] {
                  scatter_add(x, 0, tensor({{9}}, i64), ones({1, 1}));
                }),
                {"scatter_add", "index 9", "[0, 3)"}));
  CHECK(has_all(error_of([&] { index_add(x, 0, tensor({9}, i64), ones({1, 2})); }), {"index_add", "index 9"}));
  CHECK(has_all(error_of([&] { embedding(tensor({7}, i64), x); }), {"embedding", "index 7", "[0, 3)"}));
  CHECK(has_all(error_of([&] { one_hot(tensor({7}, i64), 3); }), {"one_hot", "index 7", "[0, 3)"}));
  CHECK(has_all(error_of([&] { one_hot(tensor({-7}, i64)); }), {"one_hot", "index -7"}));
  // One huge value in a strided index.
  const Tensor wide = tensor({{0, 5}, {1LL << 40, 5}}, i64).select(1, 0);
  CHECK(contains(error_of([&] { index_select(x, 0, wide); }), "index 1099511627776"));
}

TEST_CASE("indexing errors say what does not fit") {
  const Tensor x = ones({3, 2}), i = zeros({3, 2}, i64);
  CHECK(contains(error_of([&] { gather(x, 0, ones({3, 2})); }), "index is f32, expected i32 or i64"));
  CHECK(contains(error_of([&] { gather(x, 2, i); }), "gather"));
  CHECK(contains(error_of([&] { gather(x, 0, zeros({3}, i64)); }), "index is [3] and x is [3, 2]"));
  CHECK(contains(error_of([&] { gather(x, 0, zeros({3, 3}, i64)); }), "no larger size"));
  CHECK(contains(error_of([&] { gather(ones({}), 0, zeros({}, i64)); }), "rank 0"));
  CHECK(contains(error_of([&] { gather(x, 0, Tensor()); }), "undefined"));
  CHECK(contains(error_of([&] { scatter_add(x, 0, i, ones({3, 2}, f16)); }), "x is f32 but src is f16"));
  CHECK(contains(error_of([&] { scatter_add(x, 0, i, ones({3, 1})); }), "src is [3, 1]"));
  CHECK(contains(error_of([&] { scatter_add(x.to(boolean), 0, i, ones({3, 2}, boolean)); }), "x is bool"));
  CHECK(contains(error_of([&] { index_select(x, 0, i); }), "index is i64 [3, 2], expected a vector"));
  CHECK(contains(error_of([&] { index_add(x, 0, zeros({2}, i64), ones({3, 2})); }), "src is [3, 2], expected [2, 2]"));
  CHECK(contains(error_of([&] { embedding(i, ones({3})); }), "weight is f32 [3], expected [V, D]"));
  CHECK(contains(error_of([&] { embedding(i, x, 3); }), "padding_idx is 3"));
  CHECK(contains(error_of([&] { one_hot(i, 0); }), "num_classes is 0"));
  CHECK(contains(error_of([&] { one_hot(zeros({0}, i64)); }), "infer"));
  CHECK(error_of([&] { one_hot(i, INT64_MAX); }) != "");  // more memory than there is
}
