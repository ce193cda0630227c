// The optimizer passes of the CPU: what does not depend on the formulas, which tests/optim checks.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/parallel.h"
#include "tests/engine/kernel_testing.h"

using namespace halfgrad;
using testing::Array;

namespace {

constexpr Device kCpu = Device::cpu();

struct Types {
  DType param, master, grad;
  bool own_master = false;
};
constexpr Types kTypes[] = {
    {f16, f32, f16},       {f32, f32, f32, true}, {f64, f64, f64, true}, {f16, f16, f16, true}, {f16, f32, f32},
    {f32, f32, f16, true}, {f32, f32, f64, true}, {f64, f32, f16},       {f16, f64, f32},       {f64, f64, f16, true},
};

// The arrays of one parameter.
struct Memory {
  Array param, master, grad, first, second;
  bool own_master;

  Memory(const Types& types, std::int64_t n)
      : param(types.param, {n}),
        master(types.master, {n}),
        grad(types.grad, {n}),
        first(types.master == f64 ? f64 : f32, {n}),
        second(types.master == f64 ? f64 : f32, {n}),
        own_master(types.own_master) {
    master.fill(1);
    param.fill(1);
    grad.fill(2, 64);
    first.fill(3);
    second.fill(4);
    second.for_each([&](std::int64_t i) { second.set(i, std::abs(second.get(i))); });
  }
  // With this many of the states, in the order that the pass wants.
  OptimizerStep step(const Array* state0 = nullptr, const Array* state1 = nullptr) const {
    OptimizerStep step{
        .param = param.view, .master = own_master ? param.view : master.view, .grad = grad.view, .state = {}};
    step.state[0] = state0 ? state0->view : View();
    step.state[1] = state1 ? state1->view : View();
    return step;
  }
  const Array& weights() const { return own_master ? param : master; }
  bool same_bits(const Memory& other) const {
    return param.same_bits(other.param) && master.same_bits(other.master) && first.same_bits(other.first) &&
           second.same_bits(other.second) && grad.same_bits(other.grad);
  }
  bool gaps_untouched() const {
    for (const Array* array : {&param, &master, &grad, &first, &second})
      if (!array->gaps_untouched()) return false;
    return true;
  }
};

struct Pass {
  std::string name;
  std::function<void(Memory&)> run;
};

// Runs a pass over one parameter, as its step number `t`.
template <class Update>
void run(OptimizerStep step, double momentum, double beta2, std::int64_t t, bool first, Update update) {
  const GroupControl control{
      .lr = 0.05, .weight_decay = 0.1, .momentum = momentum, .beta2 = beta2, .grad_scale = 1.0 / 64};
  step.steps = &t;
  step.state_made_at = first ? t - 1 : -1;
  update(backend_for(kCpu), std::span(&step, 1), &control);
}

using Steps = std::span<const OptimizerStep>;

const std::vector<Pass>& passes() {
  const auto sgd = [](double dampening, bool nesterov) {
    return [=](Backend& b, Steps s, const GroupControl* c) { b.sgd_step(s, c, dampening, nesterov); };
  };
  const auto adam = [](bool decoupled) {
    return [=](Backend& b, Steps s, const GroupControl* c) { b.adam_step(s, c, 1e-8, decoupled); };
  };
  const auto rmsprop = [](Backend& b, Steps s, const GroupControl* c) { b.rmsprop_step(s, c, 1e-8); };
  static const std::vector<Pass> all = {
      {"sgd", [=](Memory& m) { run(m.step(), 0, 0, 1, true, sgd(0, false)); }},
      {"sgd momentum", [=](Memory& m) { run(m.step(&m.first), 0.9, 0, 3, false, sgd(0.2, false)); }},
      {"sgd first", [=](Memory& m) { run(m.step(&m.first), 0.9, 0, 3, true, sgd(0, true)); }},
      {"adam", [=](Memory& m) { run(m.step(&m.first, &m.second), 0.9, 0.99, 3, false, adam(false)); }},
      {"adamw", [=](Memory& m) { run(m.step(&m.first, &m.second), 0.9, 0.99, 3, false, adam(true)); }},
      {"rmsprop", [=](Memory& m) { run(m.step(&m.second), 0, 0.99, 3, false, rmsprop); }},
      {"rmsprop momentum", [=](Memory& m) { run(m.step(&m.second, &m.first), 0.9, 0.99, 3, false, rmsprop); }},
  };
  return all;
}

std::vector<double> stats_of(const Array& g) {
  GradStats stats{.sum_of_squares = 7, .non_finite = 7};  // what was there is written over
  const GroupedGrad grad{g.view, 0};
  backend_for(kCpu).grad_stats(&stats, 1, std::span(&grad, 1));
  return {stats.sum_of_squares, stats.non_finite};
}

}  // namespace

TEST_CASE("a pass gives the same bits on every instruction set and with any number of threads, for any length") {
  const int threads = cpu::num_threads();
  for (const Pass& pass : passes())
    for (const Types& types : kTypes)
      for (const std::int64_t n : {1, 5, 16, 531, 40007}) {
        CAPTURE(pass.name);
        CAPTURE(n);
        Memory expected(types, n);
        pass.run(expected);
        CHECK(expected.gaps_untouched());
        testing::for_each_isa([&](const char* isa) {
          CAPTURE(isa);
          for (const int k : {1, 2}) {
            cpu::set_num_threads(k);
            Memory actual(types, n);
            pass.run(actual);
            CHECK(actual.same_bits(expected));
          }
        });
        cpu::set_num_threads(threads);
      }
}

TEST_CASE("the parameter is the master, rounded once to its own type") {
  for (const Pass& pass : passes())
    for (const Types& types : kTypes) {
      CAPTURE(pass.name);
      Memory memory(types, 531), before(types, 531);
      pass.run(memory);
      int moved = 0;
      memory.weights().for_each([&](std::int64_t i) {
        const double master = memory.weights().get(i);
        Array rounded(types.param, {1});
        rounded.set(0, master);
        REQUIRE(memory.param.get(i) == rounded.get(0));
        moved += memory.param.get(i) != before.param.get(i) ? 1 : 0;
      });
      CHECK(moved > 500);  // of 531: a few updates are below half an ulp of a half
    }
}

TEST_CASE(
    "the type of the gradient does not matter where it holds the same numbers, nor does where the scale is "
    "applied") {
  for (const Pass& pass : passes()) {
    CAPTURE(pass.name);
    Memory halves({f16, f32, f16}, 531), floats({f16, f32, f32}, 531), doubles({f16, f32, f64}, 531);
    halves.grad.for_each([&](std::int64_t i) {
      floats.grad.set(i, halves.grad.get(i));
      doubles.grad.set(i, halves.grad.get(i));
    });
    for (Memory* memory : {&halves, &floats, &doubles}) pass.run(*memory);
    CHECK(floats.master.same_bits(halves.master));
    CHECK(doubles.master.same_bits(halves.master));
  }
}

TEST_CASE("an f16 weight without a master takes the f32 step, rounded once") {
  for (const Pass& pass : passes()) {
    CAPTURE(pass.name);
    Memory alone({f16, f16, f16, true}, 531), with_master({f16, f32, f16}, 531);
    alone.param.for_each([&](std::int64_t i) { with_master.master.set(i, alone.param.get(i)); });
    pass.run(alone);
    pass.run(with_master);
    CHECK(alone.param.same_bits(with_master.param));
  }
}

TEST_CASE("gradient statistics are the sum of squares and the number of elements that are not finite") {
  for (const DType dtype : {f16, f32, f64})
    for (const std::int64_t n : {1, 15, 17, 513, 40007}) {
      CAPTURE(name_of(dtype));
      CAPTURE(n);
      Array g(dtype, {n});
      g.fill(5, 100);
      long double sum = 0;
      g.for_each([&](std::int64_t i) { sum += static_cast<long double>(g.get(i)) * g.get(i); });
      // n positive terms in f64, each product and addition rounded once.
      const double bound = static_cast<double>(n + 1) * 0x1p-53 * static_cast<double>(sum);
      CHECK(std::abs(stats_of(g)[0] - static_cast<double>(sum)) <= bound);
      CHECK(stats_of(g)[1] == 0);

      const std::vector<double> finite = stats_of(g);
      testing::for_each_isa([&](const char* isa) {
        CAPTURE(isa);
        CHECK(stats_of(g) == finite);
      });

      g.set(0, std::numeric_limits<double>::infinity());
      g.set(n - 1, std::numeric_limits<double>::quiet_NaN());
      g.set(n / 2, -std::numeric_limits<double>::infinity());
      CHECK(stats_of(g)[1] == std::min<double>(static_cast<double>(n), 3));
      CHECK_FALSE(std::isfinite(stats_of(g)[0]));
    }
}

TEST_CASE("large finite gradients are not counted as infinite") {
  Array halves(f16, {1000}), floats(f32, {1000}), doubles(f64, {1000});
  halves.for_each([&](std::int64_t i) { halves.set(i, 65504); });
  floats.for_each([&](std::int64_t i) { floats.set(i, std::numeric_limits<float>::max()); });
  doubles.for_each([&](std::int64_t i) { doubles.set(i, 1e300); });
  for (const Array* g : {&halves, &floats, &doubles}) CHECK(stats_of(*g)[1] == 0);
  CHECK(stats_of(halves)[0] == doctest::Approx(1000 * 65504.0 * 65504.0));
  CHECK(std::isfinite(stats_of(floats)[0]));
}
