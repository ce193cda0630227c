#include "nn/container.h"

#include <memory>

#include "engine/ops/reduce.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;
using Names = std::vector<std::string>;

TEST_CASE("Sequential runs its layers in order") {
  nn::Sequential net(nn::Lambda([](const Tensor& x) { return x * 2; }),
                     nn::Lambda([](const Tensor& x) { return x + 1; }));
  check_values(net(tensor({1, 2})), {3, 5});
  net.add(nn::Lambda([](const Tensor& x) { return -x; })).add(nn::ReLU());
  CHECK(net.size() == 4);
  check_values(net(tensor({1, -2})), {0, 3});
  check_values(nn::Sequential()(tensor({7})), {7});
}

TEST_CASE("layers of a Sequential are reached by index and type") {
  nn::Sequential net(nn::Linear(2, 3), nn::ReLU());
  CHECK(net[1].name() == "ReLU");
  CHECK(net.get<nn::Linear>(0).weight.shape() == Shape{3, 2});
  CHECK(has(error_of([&] { net[2]; }), "layer 2 of 2"));
  CHECK(has(error_of([&] { net.get<nn::Linear>(1); }), "layer 1 is ReLU()"));
  CHECK(names_of(net.children()) == Names{"0", "1"});
}

TEST_CASE("Sequentials nest, copy and move") {
  nn::Sequential inner(nn::Linear(2, 2), nn::Tanh());
  nn::Sequential net(inner, nn::Linear(2, 1));
  CHECK(names_of(net.named_parameters()) == Names{"0.0.weight", "0.0.bias", "1.weight", "1.bias"});
  CHECK(net.parameters()[0].is_same(inner.parameters()[0]));

  nn::Sequential copy(net);
  CHECK(copy.size() == 2);
  CHECK(&copy[0] != &net[0]);
  CHECK(copy.parameters()[2].is_same(net.parameters()[2]));
  const nn::Module* first = &net[0];
  nn::Sequential moved(std::move(net));
  CHECK(&moved[0] == first);
  copy = moved;
  CHECK(copy.size() == 2);
}

TEST_CASE("a module that only moves can be a layer, but not be copied") {
  struct Owner : nn::Module {
    std::unique_ptr<int> memory = std::make_unique<int>(3);
    Tensor forward(const Tensor& x) override { return x * *memory; }
  };
  nn::Sequential net(Owner{}, nn::ReLU());
  check_values(net(tensor({2})), {6});
  CHECK(has(error_of([&] { nn::Sequential copy(net); }), "Owner: cannot be copied"));
}

TEST_CASE("of several inputs all go to the first layer") {
  struct Sum : nn::Module {
    Tensor forward_many(const Tensors& xs) override { return xs[0] + xs[1]; }
  };
  nn::Sequential net(Sum{}, nn::ReLU());
  check_values(net({tensor({1, -5}), tensor({2, 3})}), {3, 0});
}

TEST_CASE("Residual adds what it skips") {
  nn::Residual identity(nn::Linear(2, 2));
  const Tensor x = tensor({{1, -1}});
  check_values(identity(x), (identity.main()(x) + x).to_vector<double>());
  nn::Residual adapted(nn::Sequential(nn::Linear(2, 3), nn::ReLU()), nn::Linear(2, 3));
  check_values(adapted(x), (adapted.main()(x) + adapted.shortcut()(x)).to_vector<double>());
  CHECK(names_of(adapted.named_parameters()) ==
        Names{"main.0.weight", "main.0.bias", "shortcut.weight", "shortcut.bias"});

  nn::Residual wrong(nn::Linear(2, 1));  // [1, 1] would broadcast to [1, 2]
  CHECK(has(error_of([&] { wrong(x); }), "main gives [1, 1] but shortcut [1, 2]"));
}

TEST_CASE("Flatten joins all dimensions but the batch, or those it is told") {
  CHECK(nn::Flatten()(zeros({2, 3, 4, 5})).shape() == Shape{2, 60});
  CHECK(nn::Flatten(2)(zeros({2, 3, 4, 5})).shape() == Shape{2, 3, 20});
  CHECK(nn::Flatten(0, 1)(zeros({2, 3, 4, 5})).shape() == Shape{6, 4, 5});
}
