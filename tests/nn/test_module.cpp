#include "nn/module.h"

#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;
using Names = std::vector<std::string>;

TEST_CASE("parameters, buffers and modules are named by their paths, in the order of visit()") {
  Mixed net;
  CHECK(names_of(net.named_parameters()) ==
        Names{"scale", "features.0.weight", "features.1.weight", "features.1.bias"});
  CHECK(names_of(net.named_buffers()) == Names{"counts", "features.1.running_mean", "features.1.running_var"});
  CHECK(names_of(net.named_modules()) == Names{"", "features", "features.0", "features.1", "features.2"});
  CHECK(names_of(net.children()) == Names{"features"});
  CHECK(net.named_modules()[0].second == &net);
  CHECK(net.named_modules()[3].second == &net.features[1]);
  CHECK(net.parameters()[0].is_same(net.scale));
  CHECK(net.num_parameters() == 1 + 2 * 9 + 2 + 2);
}

TEST_CASE("a tied parameter is one parameter") {
  Net net;
  net.b = nn::Linear(4, 3);
  net.b.weight = net.a.weight;
  CHECK(names_of(net.named_parameters()) == Names{"a.weight", "a.bias", "b.bias"});
  CHECK(net.num_parameters() == 12 + 3 + 3);
  CHECK(names_of(net.state_dict()) == Names{"a.weight", "a.bias", "b.weight", "b.bias"});
}

TEST_CASE("copies share parameters but not modes or hooks; a copied layer is tied") {
  Mixed net;
  int calls = 0;
  net.register_forward_hook([&](nn::Module&, const Tensors&, const Tensor&) { return ++calls, Tensor(); });
  Mixed copy = net;
  copy.eval();
  CHECK(net.is_training());
  CHECK(net.features[1].is_training());
  CHECK_FALSE(copy.features[1].is_training());
  for (std::size_t i = 0; i < 4; ++i) CHECK(copy.parameters()[i].is_same(net.parameters()[i]));
  copy(zeros({1, 1, 4, 4}));
  CHECK(calls == 0);

  const nn::Linear layer(3, 3);
  nn::Sequential tied(layer, nn::ReLU(), layer);
  CHECK(names_of(tied.named_parameters()) == Names{"0.weight", "0.bias"});
}

TEST_CASE("an unshared copy starts equal and goes its own way, with ties and freezing as they were") {
  Mixed net;
  net.features[0].requires_grad_(false);
  Mixed copy = net;
  copy.unshare();
  const nn::StateDict a = net.state_dict(), b = copy.state_dict();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(same_bits(a[i].second, b[i].second));
    CHECK_FALSE(a[i].second.shares_storage(b[i].second));
  }
  CHECK(copy.scale.requires_grad());
  CHECK_FALSE(copy.parameters()[1].requires_grad());

  const nn::Linear layer(3, 3);
  nn::Sequential tied(layer, layer);
  CHECK(tied.unshare().num_parameters() == 12);
  CHECK_FALSE(tied.parameters()[0].is_same(layer.weight));
}

TEST_CASE("moving a module keeps its parameters, mode and hooks") {
  Net net;
  const Tensor weight = net.a.weight;
  int calls = 0;
  net.register_forward_hook([&](nn::Module&, const Tensors&, const Tensor&) { return ++calls, Tensor(); });
  net.eval();
  Net moved = std::move(net);
  CHECK(moved.a.weight.is_same(weight));
  CHECK_FALSE(moved.is_training());
  moved(zeros({1, 4}));
  CHECK(calls == 1);
}

TEST_CASE("a module computes with its layers and learns through them") {
  Net net;
  const Tensor x = tensor({{1, -2, 0.5, 3}});
  const Tensor y = net(x);
  CHECK(y.shape() == Shape{1, 2});
  check_values(
      y, (matmul(relu(matmul(x, net.a.weight.t()) + net.a.bias), net.b.weight.t()) + net.b.bias).to_vector<double>(),
      1e-6);
  sum(y).backward();
  for (const Tensor& p : net.parameters()) CHECK(p.grad().defined());
  net.zero_grad();
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("train and eval reach every module") {
  Mixed net;
  CHECK(net.is_training());
  net.eval();
  for (auto& [name, module] : net.named_modules()) CHECK_FALSE(module->is_training());
  net.train();
  for (auto& [name, module] : net.named_modules()) CHECK(module->is_training());
}

TEST_CASE("a module may refuse to train, such as frozen batch norm") {
  struct Frozen : Mixed {
    void train(bool on) override {
      Mixed::train(on);
      features[1].eval();
    }
  } net;
  net.train(true);
  CHECK(net.features[0].is_training());
  CHECK_FALSE(net.features[1].is_training());
}

TEST_CASE("freezing stops gradients, and only those") {
  Net net;
  net.a.requires_grad_(false);
  CHECK(net.num_parameters(true) == 3 * 2 + 2);
  CHECK(net.num_parameters() == 4 * 3 + 3 + 3 * 2 + 2);
  sum(net(ones({1, 4}))).backward();
  CHECK_FALSE(net.a.weight.grad().defined());
  CHECK(net.b.weight.grad().defined());
  net.requires_grad_();
  CHECK(net.a.weight.requires_grad());
}

TEST_CASE("apply visits children before parents") {
  Mixed net;
  Names order;
  net.apply([&](nn::Module& m) { order.push_back(m.name()); });
  CHECK(order == Names{"Conv2d", "BatchNorm2d", "ReLU", "Sequential", "Mixed"});
}

TEST_CASE("hooks see inputs and output of their module, and can replace them") {
  Net net;
  Tensor seen_input, seen_output;
  const int watch = net.a.register_forward_hook([&](nn::Module& m, const Tensors& inputs, const Tensor& y) {
    CHECK(&m == &net.a);
    seen_input = inputs[0];
    seen_output = y;
    return Tensor();
  });
  const Tensor x = ones({1, 4});
  const Tensor y = net(x);
  CHECK(seen_input.is_same(x));
  CHECK(seen_output.shape() == Shape{1, 3});

  const int replace =
      net.register_forward_hook([](nn::Module&, const Tensors&, const Tensor& out) { return out.detach() + 1; });
  check_values(net(x), (y + 1).to_vector<double>(), 1e-6);
  const int scale = net.register_forward_pre_hook([](nn::Module&, Tensors& inputs) { inputs[0] = inputs[0] * 0; });
  net(x);
  check_values(seen_input, {0, 0, 0, 0});

  net.remove_hook(scale);
  net.remove_hook(replace);
  net.a.remove_hook(watch);
  net.a.remove_hook(99);
  seen_input = Tensor();
  check_values(net(x), y.to_vector<double>());
  CHECK_FALSE(seen_input.defined());
}

TEST_CASE("a hook may remove itself") {
  Net net;
  int id = -1, calls = 0;
  id = net.register_forward_hook([&](nn::Module& m, const Tensors&, const Tensor&) {
    ++calls;
    m.remove_hook(id);
    return Tensor();
  });
  net(ones({1, 4}));
  net(ones({1, 4}));
  CHECK(calls == 1);
}

TEST_CASE("a module of several inputs overrides forward_many") {
  struct Both : nn::Module {
    Tensor forward_many(const Tensors& xs) override { return xs[0] - xs[1]; }
  } both;
  check_values(both({ones({2}), full({2}, 3)}), {-2, -2});
  CHECK(has(error_of([&] { both(ones({2})); }), "forward() is not defined"));
  nn::ReLU relu;
  CHECK(has(error_of([&] { relu({ones({2}), ones({2})}); }), "ReLU: takes one input but was called with 2"));
}

TEST_CASE("an error says in which layer it happened") {
  struct Outer : nn::Module {
    nn::Sequential body{nn::ReLU(), nn::Linear(4, 3)};
    Tensor forward(const Tensor& x) override { return body(x); }
    void visit(nn::Visitor& v) override { v.module("body", body); }
  } outer;
  const std::string message = error_of([&] { outer(ones({2, 5})); });
  CHECK(message.rfind("layer body.1, Linear(4, 3): ", 0) == 0);
  CHECK(has(message, "[2, 5]"));
  const std::string inner = error_of([&] { outer.body[1](ones({2, 5})); });
  CHECK(inner.rfind("Linear(4, 3): ", 0) == 0);
}

TEST_CASE("str() shows the tree") {
  CHECK(Net().str() == "Net(\n  (a): Linear(4, 3)\n  (b): Linear(3, 2)\n)");
  CHECK(nn::Sequential(nn::Flatten(), nn::Sequential(nn::Linear(2, 2, {.bias = false}), nn::Dropout(0.25))).str() ==
        "Sequential(\n  (0): Flatten()\n  (1): Sequential(\n    (0): Linear(2, 2, bias=false)\n    (1): "
        "Dropout(0.25)\n  )\n)");
}
