#include "engine/random.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;

TEST_CASE("summary tells names, output shapes, parameters and dtypes") {
  nn::Sequential net(nn::Conv2d(1, 8, 3, {.padding = 1}), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(),
                     nn::Linear(8 * 4 * 4, 10));
  net[0].requires_grad_(false);
  net.to(f16);
  CHECK(nn::summary(net, {2, 1, 4, 4}) ==
        "layer                                      output shape    parameters  dtype\n"
        "Sequential()                               [2, 10]\n"
        "0 Conv2d(1, 8, 3, padding=1)               [2, 8, 4, 4]            80  f16\n"
        "1 BatchNorm2d(8, eps=1e-05, momentum=0.1)  [2, 8, 4, 4]            16  f32\n"
        "2 ReLU()                                   [2, 8, 4, 4]\n"
        "3 Flatten()                                [2, 128]\n"
        "4 Linear(128, 10)                          [2, 10]              1,290  f16\n"
        "parameters: 1,386, of which trainable 1,306, frozen 80\n");
}

TEST_CASE("summary changes nothing") {
  Mixed net;
  net.features[1].eval();
  const auto before = net.state_dict();
  nn::StateDict copies;
  for (const auto& [name, x] : before) copies.emplace_back(name, x.clone());
  const GeneratorState random = default_generator().state();
  int calls = 0;
  net.register_forward_hook([&](nn::Module&, const Tensors&, const Tensor&) { return ++calls, Tensor(); });

  CHECK(has(nn::summary(net, {2, 1, 4, 4}), "features.1 BatchNorm2d"));
  CHECK(net.is_training());
  CHECK(net.features[0].is_training());
  CHECK_FALSE(net.features[1].is_training());
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(same_bits(before[i].second, copies[i].second));
  CHECK(default_generator().state() == random);
  CHECK(calls == 1);  // the user's hook stays

  // Not even when the model fails: hooks and modes are as before, so this call works again.
  CHECK(has(error_of([&] { nn::summary(net, {2, 3, 4, 4}); }), "layer features.0, Conv2d"));
  CHECK(net.features[0].is_training());
  CHECK_FALSE(net.features[1].is_training());
  net(zeros({2, 1, 4, 4}));
}

TEST_CASE("a tied parameter counts once, and a module that was not called says so") {
  struct Unused : Net {
    nn::Linear spare{2, 2};
    Unused() { spare.weight = b.weight; }
    void visit(nn::Visitor& v) override {
      Net::visit(v);
      v.module("spare", spare);
    }
  } net;
  const std::string table = nn::summary(net, {1, 4});
  CHECK(has(table, "spare Linear(3, 2)  not called               2  f32"));
  CHECK(has(table, "parameters: 25,"));
}

TEST_CASE("summary_with takes the inputs themselves") {
  nn::Sequential net(nn::Embedding(10, 3), nn::Flatten(), nn::Linear(6, 1));
  CHECK(has(nn::summary_with(net, {zeros({4, 2}, i64)}), "0 Embedding(10, 3)  [4, 2, 3]"));
}
