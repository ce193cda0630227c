#include <doctest/doctest.h>

#include <thread>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

using namespace halfgrad;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& x) { return x.to_vector<double>(); }
Tensor leaf(const Values& v, DType t = f64) { return from_vector(v).to(t).requires_grad_(); }
}  // namespace

TEST_CASE("gradients flow back through a chain and accumulate in the leaves") {
  Tensor x = leaf({1, 2}), y = leaf({3, 4});
  Tensor z = x * y + x;
  z.backward(ones({2}, f64));
  CHECK(values(x.grad()) == Values{4, 5});
  CHECK(values(y.grad()) == Values{1, 2});
  (x * 2).backward(ones({2}, f64));
  CHECK(values(x.grad()) == Values{6, 7});
  x.set_grad({});
  CHECK(!x.grad().defined());
}

TEST_CASE("a tensor that is read twice gets both gradients") {
  Tensor x = leaf({3});
  Tensor y = x * x;  // twice in one op
  Tensor z = y * y + y;
  z.backward();
  CHECK(x.grad().item() == 4 * 27 + 2 * 3);
}

TEST_CASE("a gradient whose elements share memory is not added to in place") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * 1;
  Tensor a = record("weighted", ones({}, f64), {y}, [](const Tensor& dy) {
    return Tensors{dy * tensor({1, 2, 3}, f64)};
  });
  Tensor b = record("total", ones({}, f64), {y}, [](const Tensor& dy) { return Tensors{(dy * 2).expand({3})}; });
  (a + b).backward();  // b first
  CHECK(values(x.grad()) == Values{3, 4, 5});
  Tensor expanded = ones({1}, f64).expand({3}).detach().requires_grad_();
  (expanded * tensor({1, 2, 3}, f64)).backward(ones({3}, f64));
  CHECK(values(expanded.grad()) == Values{1, 2, 3});
}

TEST_CASE("a leaf's gradient has the leaf's dtype and layout") {
  Tensor h = leaf({1, 2}, f16), f = leaf({3, 4}, f32);
  Tensor y = h * f;
  CHECK(y.dtype() == f32);
  y.backward(ones({2}));
  CHECK(h.grad().dtype() == f16);
  CHECK(f.grad().dtype() == f32);
  Tensor w = randn({2, 3, 4, 5}).channels_last().requires_grad_();
  (w * randn({2, 3, 4, 5})).backward(randn({2, 3, 4, 5}));
  CHECK(w.grad().strides() == w.strides());
}

TEST_CASE("broadcast operands get the sum of their gradient") {
  Tensor x = zeros({2, 3}, f64).requires_grad_(), row = leaf({1, 2, 3}),
         number = leaf({5}).view({}).detach().requires_grad_();
  (x + row * number).backward(ones({2, 3}, f64));
  CHECK(values(row.grad()) == Values{10, 10, 10});
  CHECK(number.grad().item() == 12);
  CHECK(values(x.grad()) == Values(6, 1.0));
}

TEST_CASE("views pass gradients on") {
  Tensor x = arange(0, 6, 1, f64).requires_grad_();
  Tensor y = x.view({2, 3}).t().slice(0, 0, 3, 2)[1] * tensor({10, 100}, f64);
  y.backward(ones({2}, f64));
  CHECK(values(x.grad()) == Values{0, 0, 10, 0, 0, 100});
}

TEST_CASE("nothing is recorded under NoGrad, for detached tensors or for integers") {
  Tensor x = leaf({1});
  {
    NoGrad guard;
    CHECK(!(x * 2).requires_grad());
    CHECK(!grad_enabled());
  }
  CHECK(grad_enabled());
  CHECK((x * 2).requires_grad());
  CHECK(!(x.detach() * 2).requires_grad());
  CHECK(!(x > 0).requires_grad());
  CHECK(!x.to(i64).requires_grad());
  CHECK_THROWS_WITH_AS(ones({1}, i32).requires_grad_(), doctest::Contains("cannot have a gradient"), Error);
  CHECK_THROWS_WITH_AS((x * 2).requires_grad_(false), doctest::Contains("only leaves"), Error);
}

TEST_CASE("the graph is freed by backward unless retained") {
  Tensor x = leaf({2});
  Tensor y = x * x;
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  CHECK(x.grad().item() == 8);
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("freed by an earlier backward"), Error);
}

TEST_CASE("what backward needs to know it asks for") {
  Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS((x * 2).backward(), doctest::Contains("a gradient must be given"), Error);
  CHECK_THROWS_WITH_AS((x * 2).backward(ones({3}, f64)), doctest::Contains("expected that of the tensor"), Error);
  CHECK_THROWS_WITH_AS(ones({1}).backward(), doctest::Contains("does not require a gradient"), Error);
  CHECK_THROWS_AS(grad(x * 2, {}, ones({2}, f64)), Error);
  CHECK_THROWS_AS(grad(x * 2, {ones({1})}, ones({2}, f64)), Error);
}

TEST_CASE("grad returns gradients, of leaves and of tensors in between, and touches no leaf") {
  Tensor x = leaf({3}), other = leaf({1});
  Tensor y = x * x;
  Tensor z = y * y;
  Tensors g = grad(z, {x, y, other}, {}, /*retain_graph=*/true);
  CHECK(g[0].item() == 4 * 27);
  CHECK(g[1].item() == 18);
  CHECK(!g[2].defined());
  CHECK(!x.grad().defined());
}

TEST_CASE("gradients of gradients") {
  Tensor x = leaf({0.5});
  Tensor y = x * x * x;
  Tensor g1 = grad(y, {x}, {}, false, /*create_graph=*/true)[0];
  Tensor g2 = grad(g1, {x}, {}, false, true)[0];
  Tensor g3 = grad(g2, {x}, {}, false, true)[0];
  CHECK(g1.item() == 0.75);
  CHECK(g2.item() == 3);
  CHECK(g3.item() == 6);
  // through an op whose gradient reads its output
  Tensor e = exp(x);
  Tensor d1 = grad(e, {x}, {}, false, true)[0];
  Tensor d2 = grad(d1, {x})[0];
  CHECK(d2.item() == doctest::Approx(e.item()).epsilon(1e-14));
  // backward(create_graph) leaves a differentiable grad in the leaf
  (x * x).backward({}, false, true);
  CHECK(x.grad().requires_grad());
  x.set_grad({});  // a gradient that is part of the graph of its own leaf keeps both alive
}

TEST_CASE("hooks see the whole gradient and may replace it") {
  Tensor x = leaf({1});
  Tensor y = x * 2;
  int calls = 0;
  const int id = y.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 10;
  });
  Tensor z = y * 3 + y * 4;
  z.backward({}, true);
  CHECK(calls == 1);
  CHECK(x.grad().item() == 140);
  y.remove_hook(id);
  const int on_leaf = x.register_hook([&](const Tensor& g) {
    CHECK(g.item() == 14);
    return Tensor();
  });
  z.backward();
  CHECK(calls == 1);
  CHECK(x.grad().item() == 154);
  x.remove_hook(on_leaf);
  Tensor w = x * 2;
  w.register_hook([](const Tensor&) { return ones({2}); });
  CHECK_THROWS_WITH_AS(w.backward(), doctest::Contains("a hook"), Error);
  CHECK_THROWS_AS(ones({1}).register_hook([](const Tensor& g) { return g; }), Error);
}

TEST_CASE("a saved tensor that is changed in place is caught") {
  Tensor x = leaf({2}), w = leaf({3});
  SUBCASE("an input") {
    Tensor y = x * w;
    {
      NoGrad guard;
      w.add_(1);
    }
    CHECK_THROWS_WITH_AS(y.backward(),
                         doctest::Contains("backward of mul: a tensor of shape [1] that it needs was changed in place"),
                         Error);
  }
  SUBCASE("an output") {
    Tensor y = exp(x);
    y.detach().mul_(2);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("backward of exp"), Error);
  }
  SUBCASE("through a view") {
    Tensor y = x * w;
    Tensor view = w.detach().view({1, 1});
    view.zero_();
    CHECK_THROWS_AS(y.backward(), Error);
  }
  SUBCASE("new data") {
    Tensor y = x * w;
    w.set_data(leaf({5}));
    CHECK_THROWS_AS(y.backward(), Error);
  }
  SUBCASE("one that is not needed may change") {
    Tensor y = x + w;
    {
      NoGrad guard;
      w.add_(1);
    }
    y.backward();
    CHECK(x.grad().item() == 1);
  }
}

TEST_CASE("in-place ops on what requires a gradient are refused while recording") {
  Tensor x = leaf({1});
  CHECK_THROWS_WITH_AS(x.add_(1), doctest::Contains("cannot be changed in place while gradients are recorded"), Error);
  Tensor y = x * 2;
  CHECK_THROWS_AS(y.fill_(0), Error);
  NoGrad guard;
  x.add_(1);
  CHECK(x.item() == 2);
}

TEST_CASE("a tensor whose elements share memory cannot be changed in place") {
  Tensor x = zeros({3, 1}).expand({3, 2});
  CHECK_THROWS_WITH_AS(x.add_(1), doctest::Contains("clone() it"), Error);
  CHECK_THROWS_AS(x.fill_(1), Error);
  CHECK_NOTHROW(x.clone().add_(1));
}

TEST_CASE("a chain of 100,000 nodes neither recurses in backward nor in its destruction") {
  Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = y + 1;
    y.backward();
    CHECK(x.grad().item() == 1);
  }
  {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = y * y;  // saves its inputs; dropped without a backward
  }
  Tensor y = x;  // wide as well as deep
  for (int i = 0; i < 1000; ++i) y = y + x;
  x.set_grad({});
  y.backward();
  CHECK(x.grad().item() == 1001);
}

TEST_CASE("inputs that do not need a gradient get none") {
  Tensor x = leaf({1, 2}), c = ones({2}, f64);
  Tensor y = x * c;
  y.backward(ones({2}, f64));
  CHECK(!c.grad().defined());
  Tensor frozen = leaf({1}).requires_grad_(false);
  CHECK(!(frozen * 2).requires_grad());
}

TEST_CASE("a gradient of the wrong shape from an op is reported with the op's name") {
  Tensor x = leaf({1, 2});
  Tensor y = record("broken", x.detach().clone(), {x}, [](const Tensor&) { return Tensors{ones({3}, f64)}; });
  CHECK_THROWS_WITH_AS(y.backward(ones({2}, f64)),
                       doctest::Contains("broken gave its input 'leaf' a gradient of shape [3]"), Error);
}

TEST_CASE("an exception in the middle leaves the switch as it was, and a later backward works") {
  Tensor x = leaf({1});
  Tensor bad = record("bad", x.detach().clone(), {x}, [](const Tensor&) -> Tensors { fail("bad: on purpose"); });
  CHECK_THROWS_AS(bad.backward(), Error);
  CHECK(grad_enabled());
  (x * 2).backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("masked-out gradients are zero even when the incoming gradient is not finite") {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = leaf({-1, 1});
  relu(x).backward(from_vector<double>({inf, inf}));
  CHECK(values(x.grad()) == Values{0, inf});
  Tensor a = leaf({1, 1});
  where(from_vector<bool>({true, false}), a, zeros({2}, f64)).backward(from_vector<double>({1, inf}));
  CHECK(values(a.grad()) == Values{1, 0});
}

TEST_CASE("threads record and run their graphs independently") {
  std::vector<double> results(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&results, t] {
      Tensor x = leaf({static_cast<double>(t)});
      for (int i = 0; i < 200; ++i) {
        x.set_grad({});
        (x * x * 3).backward();
      }
      results[t] = x.grad().item();
    });
  for (auto& thread : threads) thread.join();
  CHECK(results == std::vector<double>{0, 6, 12, 18});
}
