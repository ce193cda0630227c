// Parameter groups, freezing, checkpoints, and what is refused.

#include <doctest/doctest.h>

#include <limits>

#include "tests/optim/optim_testing.h"

using namespace halfgrad;
using namespace halfgrad::optim;
using namespace halfgrad::testing;

namespace {

void set_gradient(Tensor w, unsigned seed) { w.set_grad(random_tensor(w.shape(), w.dtype(), seed)); }

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("each group has its own learning rate, which may change between steps") {
  Tensor a = zeros({2}).requires_grad_(), b = zeros({2}).requires_grad_();
  SGD optimizer({GroupSpec{.params = {a}}, GroupSpec{.params = {b}, .lr = 0.25}}, {.lr = 1});
  const auto step = [&] {
    a.set_grad(ones({2}));
    b.set_grad(ones({2}));
    optimizer.step();
  };
  step();
  CHECK(a.to_vector<double>()[0] == -1);
  CHECK(b.to_vector<double>()[0] == -0.25);
  optimizer.groups()[1].lr = 2;
  step();
  CHECK(a.to_vector<double>()[0] == -2);
  CHECK(b.to_vector<double>()[0] == -2.25);
  optimizer.set_lr(0.5);
  step();
  CHECK(a.to_vector<double>()[0] == -2.5);
  CHECK(b.to_vector<double>()[0] == -2.75);
}

TEST_CASE("clip_each bounds the norm of each group, and clip after that the norm of all") {
  const auto stepped = [](const StepOptions& options) {
    Tensor a = zeros({2}).requires_grad_(), b = zeros({2}).requires_grad_();
    SGD optimizer({GroupSpec{.params = {a}}, GroupSpec{.params = {b}}}, {.lr = 1});
    a.set_grad(tensor({-3, -4}));
    b.set_grad(tensor({-0.3, -0.4}));
    CHECK(optimizer.step(options));
    return std::vector<double>{a.to_vector<double>()[0], b.to_vector<double>()[0]};
  };
  // Within f32 of the exact quotients, and of clip_factor's 1e-6.
  const auto check_near = [](const std::vector<double>& found, double a, double b) {
    CHECK(found[0] == doctest::Approx(a).epsilon(3e-6));
    CHECK(found[1] == doctest::Approx(b).epsilon(3e-6));
  };
  check_near(stepped({.clip_each = 1}), 3.0 / 5, 0.3);
  check_near(stepped({.grad_scale = 2, .clip_each = 1}), 3.0 / 5, 0.6);
  check_near(stepped({.clip = 1}), 3 / std::sqrt(25.25), 0.3 / std::sqrt(25.25));
  check_near(stepped({.clip_each = 1, .clip = 0.5}), 0.5 * 3.0 / 5 / std::sqrt(1.25), 0.5 * 0.3 / std::sqrt(1.25));
  check_near(stepped({.clip_each = 10, .clip = 10}), 3, 0.3);
}

TEST_CASE("a step is skipped when a gradient or the loss is not finite, and then nothing changes") {
  for (const NamedFactory& kind : all_optimizers())
    for (const bool bad_loss : {false, true}) {
      CAPTURE(kind.name);
      CAPTURE(bad_loss);
      Tensor w = parameter({5}, f16, 1);
      const auto optimizer = kind.make({GroupSpec{.params = {w}}});
      optimizer->use_masters();
      GradScaler scaler({.scale = 8, .max_noskip = 2});
      w.set_grad(ones({5}, f16));
      CHECK(optimizer->step({.scaler = &scaler}));
      const SavedState before = optimizer->state_dict();
      const Tensor weights = w.clone();
      if (bad_loss) {
        CHECK_FALSE(optimizer->step({.must_be_finite = full({}, std::numeric_limits<double>::quiet_NaN())}));
        CHECK(scaler.state().scale == 8);
      } else {
        w.set_grad(full({5}, std::numeric_limits<double>::infinity(), f16));
        CHECK_FALSE(optimizer->step({.scaler = &scaler}));
        CHECK(scaler.state().scale == 4);
        CHECK(scaler.state().skipped == 1);
      }
      const SavedState after = optimizer->state_dict();
      CHECK(after.numbers == before.numbers);
      for (const auto& [name, tensor] : before.tensors) CHECK(same_bits(after.tensors.at(name), tensor));
      CHECK(same_bits(w, weights));

      w.set_grad(ones({5}, f16));
      CHECK(optimizer->step({.scaler = &scaler, .must_be_finite = ones({})}));
      CHECK(optimizer->groups()[0].entries[0].steps() == 2);
    }
}

TEST_CASE("a frozen group and a parameter without gradient keep weights, state and step count") {
  for (const NamedFactory& kind : all_optimizers())
    for (const DType dtype : {f16, f32}) {
      CAPTURE(kind.name);
      const Tensor trained = parameter({5}, dtype, 1), unused = parameter({5}, dtype, 2),
                   frozen = parameter({5}, dtype, 3);
      const auto optimizer = kind.make({GroupSpec{.params = {trained, unused}}, GroupSpec{.params = {frozen}}});
      optimizer->use_masters();
      for (const Tensor& w : {trained, unused, frozen}) set_gradient(w, 7);
      optimizer->step();
      optimizer->groups()[1].trainable = false;
      const SavedState before = optimizer->state_dict();
      const Tensor w1 = trained.clone(), w2 = unused.clone(), w3 = frozen.clone();

      optimizer->zero_grad();
      set_gradient(trained, 8);
      set_gradient(frozen, 8);
      optimizer->step();
      CHECK_FALSE(same_bits(trained, w1));
      CHECK(same_bits(unused, w2));
      CHECK(same_bits(frozen, w3));
      const SavedState after = optimizer->state_dict();
      for (const auto& [key, tensor] : before.tensors)
        if (key[0] != '0') CHECK(same_bits(tensor, after.tensors.at(key)));
      CHECK(after.numbers.at("0.steps") == 2);
      CHECK(after.numbers.at("1.steps") == 1);
      CHECK(after.numbers.at("2.steps") == 1);
    }
}

TEST_CASE("regrouping keeps masters and state with their parameters") {
  for (const NamedFactory& kind : all_optimizers())
    for (const bool flat : {false, true}) {
      CAPTURE(kind.name);
      CAPTURE(flat);
      const auto run = [&](bool regroup) {
        const Tensors w = {parameter({5}, f16, 1), parameter({3, 7}, f16, 2), parameter({4}, f32, 3)};
        const auto optimizer = kind.make({GroupSpec{.params = w}});
        optimizer->use_masters(flat);
        for (unsigned step = 0; step < 6; ++step) {
          if (regroup && step == 3) {
            const Tensor master = optimizer->groups()[0].entries[1].master;
            optimizer->regroup({GroupSpec{.params = {w[2], w[1]}}, GroupSpec{.params = {w[0]}}});
            CHECK(optimizer->groups()[0].entries[1].master.is_same(master));
            CHECK(optimizer->groups()[0].entries[1].steps() == 3);
            CHECK(optimizer->groups()[1].flat_master.defined() == flat);
          }
          for (unsigned i = 0; i < w.size(); ++i) set_gradient(w[i], 10 * step + i);
          optimizer->step();
        }
        return w;
      };
      const Tensors expected = run(false), actual = run(true);
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(expected[i], actual[i]));
    }
}

TEST_CASE("zero_grad drops gradients, or fills them with zeros when asked to") {
  Tensor w = parameter({3}, f16, 1);
  SGD optimizer({w});
  set_gradient(w, 2);
  optimizer.zero_grad(false);
  REQUIRE(w.grad().defined());
  CHECK(same_bits(w.grad(), zeros({3}, f16)));
  optimizer.zero_grad();
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("gradient statistics are of the raw gradients of trainable groups") {
  Tensor a = zeros({2}, f16).requires_grad_(), b = zeros({1}).requires_grad_(), c = zeros({1}).requires_grad_();
  SGD optimizer({GroupSpec{.params = {a}}, GroupSpec{.params = {b, c}}});
  a.set_grad(tensor({300, 400}, f16));
  b.set_grad(tensor({12}));
  CHECK(optimizer.grad_stats_by_group()[0].sum_of_squares == 250000);
  CHECK(optimizer.grad_stats_by_group()[1].sum_of_squares == 144);
  CHECK(optimizer.grad_stats().sum_of_squares == 250144);
  CHECK(optimizer.grad_stats().non_finite == 0);

  constexpr float inf = std::numeric_limits<float>::infinity();
  a.set_grad(from_vector(std::vector<half>{inf, std::numeric_limits<half>::quiet_NaN()}));
  c.set_grad(from_vector(std::vector<float>{-inf}));
  CHECK(optimizer.grad_stats().non_finite == 3);
  optimizer.groups()[0].trainable = false;
  CHECK(optimizer.grad_stats().non_finite == 1);
}

TEST_CASE("a run that is saved and resumed continues with the same bits, whichever layout the masters have") {
  for (const NamedFactory& kind : all_optimizers())
    for (const bool flat_before : {false, true})
      for (const bool flat_after : {false, true}) {
        CAPTURE(kind.name);
        const auto params = [] {
          return Tensors{parameter({5}, f16, 1), parameter({3, 7}, f16, 2), parameter({4}, f32, 3)};
        };
        const auto train = [](Optimizer& optimizer, const Tensors& w, unsigned from, unsigned to) {
          for (unsigned step = from; step < to; ++step) {
            for (unsigned i = 0; i < w.size(); ++i)
              if ((step + i) % 3 != 0) set_gradient(w[i], 10 * step + i);
            optimizer.step();
            optimizer.zero_grad();
          }
        };
        const Tensors w = params(), v = params();
        const auto first = make_optimizer(kind.make, w), second = make_optimizer(kind.make, v);
        first->use_masters(flat_before);
        train(*first, w, 0, 5);
        first->groups()[0].lr *= 0.5;
        const SavedState saved = first->state_dict();
        const Tensors weights = {w[0].clone(), w[1].clone(), w[2].clone()};
        train(*first, w, 5, 9);

        second->use_masters(flat_after);
        train(*second, v, 20, 22);  // another state, to be overwritten
        {
          NoGrad guard;
          for (std::size_t i = 0; i < v.size(); ++i) Tensor(v[i]).copy_(weights[i]);
        }
        second->load_state_dict(saved);
        train(*second, v, 5, 9);
        for (std::size_t i = 0; i < w.size(); ++i) CHECK(same_bits(w[i], v[i]));
        const SavedState a = first->state_dict(), b = second->state_dict();
        CHECK(a.numbers == b.numbers);
        REQUIRE(a.tensors.size() == b.tensors.size());
        for (const auto& [key, tensor] : a.tensors) CHECK(same_bits(tensor, b.tensors.at(key)));
      }
}

TEST_CASE("a saved master becomes the value of an f32 parameter and the master of an f16 one") {
  const Tensor w = parameter({5}, f16, 1);
  Adam mixed({w});
  mixed.use_masters();
  set_gradient(w, 2);
  mixed.step();
  const SavedState saved = mixed.state_dict();

  const Tensor v = parameter({5}, f32, 9);
  Adam plain({v});
  plain.load_state_dict(saved);
  CHECK(same_bits(v, saved.tensors.at("0.master")));

  const Tensor u = parameter({5}, f16, 9);
  Adam other({u});
  other.load_state_dict(saved);
  CHECK(other.groups()[0].entries[0].has_master());
  CHECK(same_bits(other.groups()[0].entries[0].master, saved.tensors.at("0.master")));
  CHECK(same_bits(u, w));
}

TEST_CASE("a state that does not fit is refused and changes nothing") {
  const Tensor w = parameter({5}, f32, 1);
  Adam optimizer({w});
  set_gradient(w, 2);
  optimizer.step();
  const SavedState before = optimizer.state_dict();

  Adam two({parameter({5}, f32, 1), parameter({5}, f32, 2)});
  CHECK(message_of([&] { optimizer.load_state_dict(two.state_dict()); }) ==
        "Adam: the saved state is of 2 parameters, this optimizer has 1; build it as the one that was saved");
  SavedState reshaped = before;
  reshaped.tensors["0.exp_avg"] = zeros({6});
  CHECK(message_of([&] { optimizer.load_state_dict(reshaped); }) ==
        "Adam: \"0.exp_avg\" in the saved state has shape [6], its parameter [5]");
  SavedState stray = before;
  for (const char* name : {"7.exp_avg", "exp_avg", "0"}) {
    stray.tensors = {{name, zeros({5})}};
    CHECK(message_of([&] { optimizer.load_state_dict(stray); }).find(name) != std::string::npos);
  }
  CHECK(message_of([&] { optimizer.load_state_dict({}); }).find("\"parameters\"") != std::string::npos);

  const SavedState after = optimizer.state_dict();
  CHECK(after.numbers == before.numbers);
  for (const auto& [key, tensor] : before.tensors) CHECK(same_bits(tensor, after.tensors.at(key)));
}

TEST_CASE("what cannot be optimized is refused with a reason") {
  const Tensor w = parameter({5}, f32, 1);
  CHECK(message_of([] { SGD(Tensors{}); }) == "SGD: there is no parameter to optimize");
  CHECK(message_of([&] {
          SGD({w, w});
        }) == "SGD: a parameter of shape [5] is listed twice; list it in one group, once");
  CHECK(message_of([&] { SGD({zeros({2}, i64)}); }).find("is i64; expected a float dtype") != std::string::npos);
  CHECK(message_of([&] { SGD({w.clone()}); }).find("expected a leaf") != std::string::npos);
  CHECK(message_of([&] { SGD({Tensor()}); }).find("undefined") != std::string::npos);
  CHECK(message_of([&] { SGD({w}, {.lr = -1}); }).find("lr is -1") != std::string::npos);
  CHECK(message_of([&] { SGD({w}, {.nesterov = true}); }).find("nesterov") != std::string::npos);
  CHECK(message_of([&] { Adam({w}, {.beta2 = 1}); }).find("expected 0 <= beta < 1") != std::string::npos);
  CHECK(message_of([&] { RMSprop({w}, {.eps = -1}); }).find("eps is -1") != std::string::npos);
  CHECK(message_of([&] { SGD({w}).step(std::numeric_limits<double>::infinity()); }).find("grad_scale inf") !=
        std::string::npos);
}

TEST_CASE("a parameter that changed its shape after its state was made is refused") {
  Tensor w = parameter({5}, f32, 1);
  Adam optimizer({w});
  set_gradient(w, 2);
  optimizer.step();
  w.set_data(zeros({6}));
  set_gradient(w, 3);
  CHECK(message_of([&] { optimizer.step(); }).find("make a new optimizer") != std::string::npos);
}

TEST_CASE("a parameter without elements is no trouble") {
  for (const NamedFactory& kind : all_optimizers()) {
    Tensor w = zeros({0, 3}, f16).requires_grad_();
    const auto optimizer = make_optimizer(kind.make, {w});
    optimizer->use_masters(true);
    w.set_grad(zeros({0, 3}, f16));
    optimizer->step();
    CHECK(optimizer->grad_stats().sum_of_squares == 0);
    CHECK(optimizer->groups()[0].entries[0].steps() == 1);
  }
}
