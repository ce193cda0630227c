// Mixed precision: f16 parameters, f32 masters.

#include <doctest/doctest.h>

#include <cmath>

#include "tests/optim/optim_testing.h"

using namespace halfgrad;
using namespace halfgrad::optim;
using namespace halfgrad::testing;

namespace {

const std::vector<Shape> kShapes = {{3, 5}, {17}, {}, {2, 8}};

Tensors parameters(DType dtype) {
  Tensors params;
  for (unsigned i = 0; i < kShapes.size(); ++i) params.push_back(parameter(kShapes[i], dtype, i));
  return params;
}

// Sets gradients that differ from step to step; a parameter i with `missing(i)` gets none.
template <class Missing>
void set_gradients(const Tensors& params, unsigned step, double scale, Missing&& missing) {
  for (unsigned i = 0; i < params.size(); ++i) {
    Tensor p = params[i];
    p.set_grad(missing(i) ? Tensor() : random_tensor(p.shape(), f16, 1000 * step + i).to(p.dtype()).mul_(scale));
  }
}
void set_gradients(const Tensors& params, unsigned step, double scale = 1) {
  set_gradients(params, step, scale, [](unsigned) { return false; });
}

Tensors masters_of(const Optimizer& optimizer) {
  Tensors masters;
  for (const ParamGroup& group : optimizer.groups())
    for (const Entry& entry : group.entries) masters.push_back(entry.master);
  return masters;
}

bool all_same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("an update below half an ulp of the weight is lost without a master and adds up in one") {
  // Around 1 halves are 2^-11 (below) and 2^-10 (above) apart.
  const auto train = [](bool masters) {
    Tensor w = full({40}, 1, f16).requires_grad_();
    SGD optimizer({w}, {.lr = 0x1p-13});
    if (masters) optimizer.use_masters();
    for (int step = 0; step < 64; ++step) {
      w.set_grad(full({40}, 1, f16));
      optimizer.step();
    }
    return w.to_vector<double>()[39];
  };
  CHECK(train(false) == 1);
  CHECK(train(true) == 1 - 64 * 0x1p-13);
}

TEST_CASE("masters take exactly the steps of an f32 run, and parameters are masters rounded to nearest even") {
  for (const NamedFactory& kind : all_optimizers())
    for (const bool flat : {false, true}) {
      CAPTURE(kind.name);
      CAPTURE(flat);
      const Tensors halves = parameters(f16), floats = parameters(f32);
      const auto mixed = make_optimizer(kind.make, halves), plain = make_optimizer(kind.make, floats);
      mixed->use_masters(flat);
      for (unsigned step = 0; step < 20; ++step) {
        set_gradients(halves, step, 1024);
        set_gradients(floats, step);
        mixed->step(1.0 / 1024);
        plain->step();
        const Tensors masters = masters_of(*mixed);
        REQUIRE(all_same_bits(masters, floats));
        for (std::size_t i = 0; i < halves.size(); ++i) REQUIRE(same_bits(halves[i], masters[i].to(f16)));
      }
    }
}

TEST_CASE("flat masters are one vector per group, 64-byte aligned, and change no bit, missing gradients included") {
  for (const NamedFactory& kind : all_optimizers()) {
    CAPTURE(kind.name);
    Tensors a = parameters(f16), b = parameters(f16);
    a.push_back(parameter({4}, f32, 9));  // such as a batchnorm's weight
    b.push_back(parameter({4}, f32, 9));
    const auto separate = make_optimizer(kind.make, a), flat = make_optimizer(kind.make, b);
    separate->use_masters(false);
    flat->use_masters(true);
    for (unsigned step = 0; step < 12; ++step) {
      const auto missing = [step](unsigned i) { return (step + i) % 3 == 0 || (i == 1 && step < 5); };
      set_gradients(a, step, 8, missing);
      set_gradients(b, step, 8, missing);
      separate->step(0.125);
      flat->step(0.125);
      REQUIRE(all_same_bits(a, b));
      REQUIRE(all_same_bits(masters_of(*separate), masters_of(*flat)));
    }
    const ParamGroup& group = flat->groups()[0];
    REQUIRE(group.flat_master.defined());
    CHECK(group.flat_master.is_contiguous());
    CHECK_FALSE(separate->groups()[0].flat_master.defined());
    for (std::size_t i = 0; i < group.entries.size(); ++i) {
      const Entry& entry = group.entries[i];
      const Entry& other = separate->groups()[0].entries[i];
      CHECK(entry.steps() == other.steps());
      CHECK(entry.has_master() == (entry.param.dtype() == f16));
      CHECK(entry.master.shares_storage(group.flat_master) == entry.has_master());
      if (entry.has_master()) CHECK(reinterpret_cast<std::uintptr_t>(entry.master.raw_data()) % 64 == 0);
      CHECK(entry.state.size() == other.state.size());
      for (const auto& [key, tensor] : entry.state) {
        CHECK(same_bits(tensor, other.state.at(key)));
        if (entry.has_master()) CHECK(tensor.shares_storage(group.flat_state.at(key)));
      }
    }
  }
}

TEST_CASE("asking for masters again finds the same ones, also after a change of layout") {
  const Tensors params = parameters(f16);
  Adam optimizer(params, {.lr = 0.01});
  optimizer.use_masters();
  set_gradients(params, 0);
  optimizer.step();
  const Tensors before = masters_of(optimizer);
  Tensors copies;
  for (const Tensor& master : before) copies.push_back(master.clone());
  const Tensor exp_avg = optimizer.groups()[0].entries[0].state.at("exp_avg");

  for (const bool flat : {false, true, true, false}) {
    optimizer.use_masters(flat);
    const Tensors now = masters_of(optimizer);
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(now[i].is_same(before[i]));
    CHECK(all_same_bits(now, copies));
    CHECK(optimizer.groups()[0].entries[0].state.at("exp_avg").is_same(exp_avg));
    CHECK(optimizer.groups()[0].flat_master.defined() == flat);
  }
}

TEST_CASE("dropping masters gives the parameter their full precision and keeps the state") {
  for (const bool flat : {false, true}) {
    const Tensors params = parameters(f16), floats = parameters(f32);
    AdamW optimizer(params, {.lr = 0.01}), plain(floats, {.lr = 0.01});
    optimizer.use_masters(flat);
    for (unsigned step = 0; step < 10; ++step) {
      set_gradients(params, step);
      set_gradients(floats, step);
      optimizer.step();
      plain.step();
      if (step == 4) {
        optimizer.drop_masters();
        CHECK(params[0].dtype() == f32);
        CHECK(params[0].requires_grad());
        CHECK_FALSE(optimizer.groups()[0].entries[0].has_master());
        CHECK_FALSE(optimizer.groups()[0].flat_master.defined());
      }
    }
    CHECK(all_same_bits(params, floats));
  }
}

TEST_CASE(
    "a step starts from the master: what was done to it by hand counts, what was done to the parameter does "
    "not") {
  Tensor w = full({3}, 1, f16).requires_grad_();
  SGD optimizer({w}, {.lr = 0.5});
  optimizer.use_masters();
  Tensor master = optimizer.groups()[0].entries[0].master;
  const auto step = [&] {
    w.set_grad(full({3}, 1, f16));
    optimizer.step();
    return w.to_vector<double>()[0];
  };
  master.fill_(2);
  CHECK(step() == 1.5);
  master.clamp_(-1, 1);
  optimizer.sync_params_from_masters();
  CHECK(w.to_vector<double>()[0] == 1);
  CHECK(step() == 0.5);

  {
    NoGrad guard;
    w.fill_(8);  // such as load_state_dict
  }
  optimizer.sync_masters_from_params();
  CHECK(step() == 7.5);
}

TEST_CASE("a parameter that is frozen gets no master until it is trained") {
  Tensor w = full({3}, 1, f16);
  Tensor v = full({3}, 1, f16).requires_grad_();
  SGD optimizer({w, v}, {.lr = 0x1p-12});
  optimizer.use_masters();
  CHECK_FALSE(optimizer.groups()[0].entries[0].has_master());
  CHECK(optimizer.groups()[0].entries[1].has_master());
  w.requires_grad_();
  for (int i = 0; i < 8; ++i) {
    w.set_grad(ones_like(w));
    optimizer.step();
  }
  CHECK(optimizer.groups()[0].entries[0].has_master());
  CHECK(w.to_vector<double>()[0] == 1 - 8 * 0x1p-12);
}

TEST_CASE("an f16 parameter can be trained without a master, its state is f32") {
  for (const NamedFactory& kind : all_optimizers()) {
    CAPTURE(kind.name);
    Tensor w = parameter({40}, f16, 3), v = parameter({40}, f32, 3);
    const auto half_run = make_optimizer(kind.make, {w}), float_run = make_optimizer(kind.make, {v});
    for (Tensor* x : {&w, &v}) x->set_grad(random_tensor({40}, x->dtype(), 4));
    half_run->step();
    float_run->step();
    // One step is the f32 step, rounded once.
    CHECK(same_bits(w, v.to(f16)));
    for (const auto& [key, tensor] : half_run->groups()[0].entries[0].state) CHECK(tensor.dtype() == f32);
  }
}

TEST_CASE("a step is noticed by a graph that still needs the old weights") {
  Tensor w = full({3}, 1, f32).requires_grad_();
  const std::uint32_t before = w.version();
  SGD optimizer({w});
  w.set_grad(ones_like(w));
  optimizer.step();
  CHECK(w.version() != before);
}
