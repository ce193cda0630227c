// The three launches of an optimizer step: the rules are IEEE arithmetic, so masters, moments and weights are the CPU's, bit
// for bit. Only the norm is a sum in another order, and clip factors with it.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "optim/clip.h"
#include "tests/optim/optim_testing.h"

using namespace halfgrad;
using namespace halfgrad::testing;
using namespace halfgrad::optim;

namespace {

const Device gpu = Device::cuda();

// Shorter and longer than the eight elements of a thread and the 8192 of a block, and none at all.
const std::vector<Shape> kShapes = {{1}, {0}, {7}, {3, 5}, {8}, {67, 125}, {20001}, {2, 0}, {16384}};

struct Case {
  DType dtype;
  bool masters, flat;
};
const std::vector<Case> kCases = {
    {f32, false, false}, {f64, false, false}, {f16, false, false}, {f16, true, false}, {f16, true, true}};

// A parameter for each shape, the first half of them in a group of its own.
std::vector<GroupSpec> parameters(const std::vector<Shape>& shapes, DType dtype, Device device) {
  std::vector<GroupSpec> groups = {{.params = {}}, {.params = {}, .lr = 0.003, .weight_decay = 0.1}};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    groups[i < shapes.size() / 2 ? 0 : 1].params.push_back(
        random_tensor(shapes[i], dtype, i + 1).to(device).requires_grad_());
  return groups;
}

void set_gradients(const std::vector<GroupSpec>& groups, DType dtype, std::uint64_t seed) {
  for (const GroupSpec& group : groups)
    for (Tensor param : group.params) {
      param.set_grad(random_tensor(param.shape(), dtype, ++seed).to(param.device()));
    }
}

void check_same(const Optimizer& found, const Optimizer& expected) {
  const SavedState a = found.state_dict(), b = expected.state_dict();
  CHECK(a.numbers == b.numbers);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& entry : b.tensors)
    CHECK_MESSAGE(same_bits(a.tensors.at(entry.first).to(Device::cpu()), entry.second), entry.first);
  for (std::size_t g = 0; g < found.groups().size(); ++g)
    for (std::size_t i = 0; i < found.groups()[g].entries.size(); ++i)
      CHECK(same_bits(found.groups()[g].entries[i].param.detach().to(Device::cpu()),
                      expected.groups()[g].entries[i].param.detach()));
}

}  // namespace

TEST_CASE("every optimizer's step gives the CPU's bits") {
  for (const NamedFactory& kind : all_optimizers())
    for (const Case& c : kCases) {
      CAPTURE(kind.name);
      CAPTURE(name_of(c.dtype));
      CAPTURE(c.flat);
      const auto on_cpu = parameters(kShapes, c.dtype, Device::cpu()), on_gpu = parameters(kShapes, c.dtype, gpu);
      const auto expected = kind.make(on_cpu), found = kind.make(on_gpu);
      GradScaler cpu_scaler({.scale = 1024, .max_noskip = 2}), gpu_scaler({.scale = 1024, .max_noskip = 2});
      if (c.masters)
        for (Optimizer* optimizer : {expected.get(), found.get()}) optimizer->use_masters(c.flat);
      for (std::uint64_t step = 0; step < 5; ++step) {
        set_gradients(on_cpu, c.dtype, 100 * step);
        set_gradients(on_gpu, c.dtype, 100 * step);
        for (const auto* groups : {&on_cpu, &on_gpu})
          if (Tensor grad = groups->at(1).params[2].grad(); step == 2)
            grad.select(0, 11).fill_(std::numeric_limits<double>::infinity());
        CHECK(expected->step({.scaler = &cpu_scaler}) == (step != 2));
        found->step({.scaler = &gpu_scaler});
      }
      check_same(*found, *expected);
      CHECK(gpu_scaler.state() == cpu_scaler.state());
      CHECK(gpu_scaler.state().skipped == 1);
      CHECK(gpu_scaler.state().scale == 2048);  // up, down, up
    }
}

TEST_CASE("more parameters than one launch takes, and memory that is not aligned") {
  std::vector<Shape> shapes(700, Shape{3});
  for (const DType dtype : {f16, f32}) {
    CAPTURE(name_of(dtype));
    const auto on_cpu = parameters(shapes, dtype, Device::cpu());
    auto on_gpu = parameters(shapes, dtype, gpu);
    for (GroupSpec& group : on_gpu)
      for (Tensor& param : group.params) {
        const Tensor wide = zeros({4}, dtype, gpu);
        param = wide.slice(0, 1).copy_(param.detach()).detach().requires_grad_();
      }
    const auto expected = adamw()(on_cpu), found = adamw()(on_gpu);
    for (std::uint64_t step = 0; step < 2; ++step) {
      set_gradients(on_cpu, dtype, 1000 * step);
      set_gradients(on_gpu, dtype, 1000 * step);
      CHECK(expected->step());
      found->step();
    }
    check_same(*found, *expected);
    // n positive terms in f64, added in another order: each sum is off by at most n 2^-53, relatively.
    const GradStats a = found->grad_stats(), b = expected->grad_stats();
    CHECK(std::abs(a.sum_of_squares - b.sum_of_squares) <= 2 * 2100 * 0x1p-53 * b.sum_of_squares);
    CHECK(a.non_finite == 0);
  }
}

TEST_CASE("gradient statistics of each group, and clipping by them") {
  const auto on_cpu = parameters(kShapes, f16, Device::cpu()), on_gpu = parameters(kShapes, f16, gpu);
  const auto expected = sgd({.lr = 1})(on_cpu), found = sgd({.lr = 1})(on_gpu);
  for (Optimizer* optimizer : {expected.get(), found.get()}) optimizer->use_masters();
  set_gradients(on_cpu, f16, 1);
  set_gradients(on_gpu, f16, 1);
  const auto a = found->grad_stats_by_group(), b = expected->grad_stats_by_group();
  for (std::size_t g = 0; g < 2; ++g) {
    CHECK(std::abs(a[g].sum_of_squares - b[g].sum_of_squares) <= 2 * 50000 * 0x1p-53 * b[g].sum_of_squares);
    CHECK(a[g].non_finite == b[g].non_finite);
  }
  const StepOptions options{.grad_scale = 0.5, .clip_each = 3, .clip = 4};
  expected->step(options);
  found->step(options);
  // A factor that is off by 1e-12, at most, is rounded to another f32 at times: one ulp of the update.
  for (std::size_t g = 0; g < 2; ++g)
    for (std::size_t i = 0; i < found->groups()[g].entries.size(); ++i) {
      const std::vector<double> x = found->groups()[g].entries[i].master.to_vector<double>(),
                                y = expected->groups()[g].entries[i].master.to_vector<double>();
      for (std::size_t k = 0; k < x.size(); ++k) REQUIRE(std::abs(x[k] - y[k]) <= 0x1p-23 * (1 + std::abs(y[k])));
    }
  Tensor grad = on_gpu[0].params[0].grad();
  grad.fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(found->grad_stats().non_finite == 1);
  found->zero_grad();
  CHECK(found->grad_stats().sum_of_squares == 0);
}
