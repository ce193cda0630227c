#include "engine/random.h"
#include "tests/nn/expect.h"
#include "tests/nn/nets.h"

using namespace halfgrad;
using namespace halfgrad::testing;
using Names = std::vector<std::string>;

TEST_CASE("a state dict lists parameters and buffers of each module, and shares their memory") {
  Mixed net;
  const nn::StateDict state = net.state_dict();
  CHECK(names_of(state) == Names{"scale", "counts", "features.0.weight", "features.1.weight", "features.1.bias",
                                 "features.1.running_mean", "features.1.running_var"});
  CHECK_FALSE(state[0].second.requires_grad());
  CHECK(state[0].second.shares_storage(net.scale));
}

TEST_CASE("a loaded state makes a second model the same, in its own memory") {
  manual_seed(1);
  Mixed from, to;
  from.features.get<nn::BatchNorm2d>(1).running_var.fill_(2.5);
  from.counts.fill_(7);
  const Tensor handle = to.features.get<nn::Conv2d>(0).weight;
  const nn::LoadReport report = to.load_state_dict(from.state_dict());
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  const nn::StateDict a = from.state_dict(), b = to.state_dict();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(same_bits(a[i].second, b[i].second));
    CHECK_FALSE(a[i].second.shares_storage(b[i].second));
  }
  CHECK(handle.is_same(to.features.get<nn::Conv2d>(0).weight));
  CHECK(handle.requires_grad());
}

TEST_CASE("loading converts with one rounding") {
  nn::Linear net(1, 1, {.bias = false});
  net.to(f16);
  const double value = 1 + 0x1p-11 + 0x1p-40;  // by way of f32 it would round to 1
  net.load_state_dict({{"weight", full({1, 1}, value, f64)}});
  CHECK(net.weight.dtype() == f16);
  check_values(net.weight, {1 + 0x1p-10});
}

TEST_CASE("an error lists everything that does not fit, and nothing was loaded") {
  Net net;
  const Tensor before = net.a.bias.detach().clone();
  nn::StateDict state = {{"a.weight", zeros({3, 5})},
                         {"a.bias", zeros({3})},
                         {"b.weight", zeros({2, 3}, i64)},
                         {"c.weight", zeros({1})},
                         {"head.bias", zeros({1})}};
  const std::string message = error_of([&] { net.load_state_dict(state); });
  CHECK(has(message, "does not fit Net"));
  CHECK(has(message, "unfit: a.weight is [3, 5], the model's is [3, 4], b.weight is i64, the model's is f32"));
  CHECK(has(message, "missing: b.bias"));
  CHECK(has(message, "unexpected: c.weight, head.bias"));
  CHECK(same_bits(net.a.bias, before));
  CHECK(has(error_of([&] { net.load_state_dict(state, false); }), "unfit: a.weight"));
  CHECK(same_bits(net.a.bias, before));
}

TEST_CASE("without strict, missing and unexpected names are reported and passed over") {
  Net net;
  const nn::LoadReport report = net.load_state_dict({{"a.bias", full({3}, 9)}, {"extra", zeros({1})}}, false);
  CHECK(report.missing == Names{"a.weight", "b.weight", "b.bias"});
  CHECK(report.unexpected == Names{"extra"});
  check_values(net.a.bias, {9, 9, 9});
}

TEST_CASE("names must be unique") {
  struct Twice : nn::Module {
    Tensor a = zeros({1}), b = zeros({1});
    void visit(nn::Visitor& v) override {
      v.parameter("w", a);
      v.parameter("w", b);
    }
  };
  CHECK(has(error_of([] { Twice().state_dict(); }), "Twice: visit() lists two tensors as \"w\""));
  const Tensor bias = zeros({3});
  CHECK(has(error_of([&] { Net().load_state_dict({{"a.bias", bias}, {"a.bias", bias}}); }), "a name appears twice"));
  CHECK(has(error_of([&] { Net().load_state_dict({{"a.bias", Tensor()}}, false); }), "a.bias is undefined"));
}
