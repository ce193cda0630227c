#include "nn/container.h"

#include <memory>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/random.h"
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

namespace {

// All bits of a run: the output, the gradients of the input and the parameters, and the buffers.
std::vector<std::vector<double>> bits_of_a_run(nn::Module& net, const Tensor& input) {
  const Tensor x = input.detach().clone().requires_grad_();
  net.zero_grad();
  const Tensor y = net(x);
  const Tensor weights = arange(y.numel()).reshape(y.shape()).to(y.dtype()) - 20;  // of both signs
  sum(y * weights).backward();
  std::vector<std::vector<double>> bits = {y.detach().to(f64).to_vector<double>(),
                                           x.grad().to(f64).to_vector<double>()};
  for (const Tensor& parameter : net.parameters())
    if (parameter.grad().defined()) bits.push_back(parameter.grad().to(f64).to_vector<double>());
  for (const auto& [name, buffer] : net.named_buffers()) bits.push_back(buffer.to(f64).to_vector<double>());
  return bits;
}

nn::Sequential images_to_classes() {
  return nn::Sequential(nn::Sequential(nn::Conv2d(2, 5, 3, {.padding = 1}), nn::BatchNorm2d(5)), nn::ReLU(),
                        nn::Conv2d(5, 3, 2), nn::ReLU(), nn::Flatten(), nn::Linear(75, 7), nn::ReLU(),
                        nn::Linear(7, 4, {.bias = false}), nn::BatchNorm1d(4), nn::ReLU());
}

// The name of the op that made it. (linear() ends with a view.)
std::string last_op(const Tensor& y) {
  const std::string name = y.grad_fn()->name;
  return name == "view" ? y.grad_fn()->inputs[0]->name : name;
}

}  // namespace

TEST_CASE("a layer and the ReLU behind it become one op, with the bits of two") {
  for (const DType dtype : {f32, f16, f64})
    for (const bool training : {true, false}) {
      manual_seed(3);
      nn::Sequential joined = images_to_classes(), apart = joined;
      apart.unshare();
      apart.apply([](nn::Module& m) { m.register_forward_hook([](auto&, auto&, auto&) { return Tensor(); }); });
      for (nn::Sequential* net : {&joined, &apart}) {
        net->to(dtype);
        net->train(training);
      }
      const Tensor x = randn({6, 2, 6, 6}).to(dtype);
      CHECK(last_op(joined(x)) == "batch_norm");
      CHECK(last_op(apart(x)) == "relu");
      CHECK(bits_of_a_run(joined, x) == bits_of_a_run(apart, x));
    }
}

TEST_CASE("a ReLU stays an op of its own where somebody must see what lies before it") {
  const Tensor x = tensor({-1, 2});
  const auto hook = [](nn::Module&, const Tensors&, const Tensor&) { return Tensor(); };
  nn::Sequential net(nn::Linear(2, 3), nn::ReLU());
  CHECK(last_op(net(x)) == "linear");
  int id = net[0].register_forward_hook(hook);
  CHECK(last_op(net(x)) == "relu");
  net[0].remove_hook(id);
  id = net[1].register_forward_pre_hook([](nn::Module&, Tensors&) {});
  CHECK(last_op(net(x)) == "relu");
  net[1].remove_hook(id);
  CHECK(last_op(net(x)) == "linear");

  // A derived class computes what it likes.
  struct Negated : nn::Linear {
    using Linear::Linear;
    Tensor forward(const Tensor& x) override { return -Linear::forward(x); }
  };
  struct Leaky : nn::ReLU {
    Tensor forward(const Tensor& x) override { return leaky_relu(x, 0.5); }
  };
  nn::Sequential negated(Negated(1, 1, nn::LinearOptions{.bias = false}), nn::ReLU());
  negated.get<nn::Linear>(0).weight.detach().fill_(-3);
  check_values(negated(tensor({2})), {6});
  nn::Sequential leaky(nn::Linear(1, 1, {.bias = false}), Leaky());
  leaky.get<nn::Linear>(0).weight.detach().fill_(-3);
  check_values(leaky(tensor({2})), {-3});
}

TEST_CASE("an error in a joined layer names the layer") {
  nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Sequential(nn::Linear(5, 2)), nn::ReLU());
  CHECK(has(error_of([&] { net(ones({1, 3})); }), "layer 0, Linear(4, 3)"));
  CHECK(has(error_of([&] { net(ones({1, 4})); }), "layer 2.0, Linear(5, 2)"));
}
