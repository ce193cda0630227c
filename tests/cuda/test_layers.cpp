// Every layer of nn/ trains one step on a GPU as on the CPU: outputs, gradients, statistics and updated parameters.
//
// All numbers here are small multiples of 1/2, so a sum of products is exact in f32 in whatever order it is made, and short
// enough to be exact in f16, too: then both devices must agree bit for bit. The layers that compute other numbers differ by
// their roundings. A case says how many roundings lie behind one of its results, each off by at most 2^-24 of the largest
// number on the way, which is at most 16 times the largest result here; and there are two devices. Where that lies near the
// middle of two halves, they are rounded to either.

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "engine/autograd.h"
#include "engine/random.h"
#include "nn/nn.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

const Device gpu = Device::cuda();

struct LayerCase {
  const char* name;
  nn::AnyModule layer;
  Tensor input;  // f32 or i64
  int roundings = 0;
};

Tensor halves(const Shape& shape, std::uint64_t seed) { return integers(shape, -2, 3, seed).to(f32) * 0.5; }

constexpr int kFunction = 8;  // what the library computes by a polynomial, and the formula around it
// Sums over n numbers of numbers that are means over n, and the formula around them.
constexpr int of_norm(int n) { return 2 * n + 16; }

std::vector<LayerCase> layer_cases() {
  using namespace nn;
  const Tensor image = halves({2, 4, 6, 4}, 1), rows = halves({6, 8}, 2);
  std::vector<LayerCase> cases = {
      {"Linear", Linear(8, 5), rows},
      {"Linear without bias", Linear(8, 5, {.bias = false}), rows},
      {"Linear of a sequence", Linear(4, 3), halves({2, 3, 4}, 3)},
      {"Conv2d", Conv2d(4, 3, 3, {.padding = 1}), image},
      {"Conv2d, strided, dilated, in groups",
       Conv2d(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}), image},
      {"ConvTranspose2d", ConvTranspose2d(4, 3, 4, {.stride = 2, .padding = 1}), image},
      {"BatchNorm2d", BatchNorm2d(4), image, of_norm(48)},
      {"BatchNorm1d", BatchNorm1d(8), rows, of_norm(6)},
      {"LayerNorm", LayerNorm(8), rows, of_norm(8)},
      {"MaxPool2d", MaxPool2d(3, {.stride = 1, .padding = 1}), image},
      {"AvgPool2d", AvgPool2d(2), image},
      {"AdaptiveAvgPool2d", AdaptiveAvgPool2d(1), halves({2, 4, 4, 4}, 4)},
      {"ReLU", ReLU(), rows},
      {"LeakyReLU", LeakyReLU(0.25), rows},
      {"ELU", ELU(), rows, kFunction},
      {"Softplus", Softplus(), rows, kFunction},
      {"GELU", GELU(), rows, kFunction},
      {"SiLU", SiLU(), rows, kFunction},
      {"Tanh", Tanh(), rows, kFunction},
      {"Sigmoid", Sigmoid(), rows, kFunction},
      {"Softmax", Softmax(), rows, of_norm(8)},
      {"Dropout", Dropout(0.5), rows},
      {"Embedding", Embedding(7, 4), integers({3, 5}, 0, 7)},
      {"Identity", Identity(), rows},
      {"Flatten", Flatten(), image},
      {"Residual", Residual(Linear(8, 8)), rows},
      {"Sequential", Sequential(Conv2d(4, 3, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(6, 2)), image},
  };
  return cases;
}

// What one step leaves behind, in f64 on the CPU.
struct Step {
  std::vector<std::pair<std::string, std::vector<double>>> results;
  void add(const std::string& name, const Tensor& x) {
    if (x.defined()) results.emplace_back(name, x.detach().to(Device::cpu()).to_vector<double>());
  }
};

Step train(const LayerCase& c, DType dtype, Device device) {
  nn::AnyModule layer = c.layer;
  layer->unshare();
  std::uint64_t seed = 10;
  for (const auto& [name, p] : layer->named_parameters()) Tensor(p.detach()).copy_(halves(p.shape(), ++seed));
  layer->to(dtype).to(device);

  Tensor x = is_floating(c.input.dtype()) ? c.input.detach().to(dtype).to(device).requires_grad_() : c.input.to(device);
  manual_seed(1);
  const Tensor y = (*layer)(x);
  y.backward(halves(y.shape(), 99).to(y.dtype()).to(device));

  Step step;
  step.add("output", y);
  step.add("gradient of the input", x.grad());
  NoGrad guard;
  for (const auto& [name, p] : layer->named_parameters()) {
    CHECK(p.device() == device);
    step.add("gradient of " + name, p.grad());
    Tensor(p).add_(p.grad(), -0.125);
    step.add("new " + name, p);
  }
  for (const auto& [name, buffer] : layer->named_buffers()) step.add(name, buffer);
  return step;
}

// The largest difference that is allowed between two results of the largest magnitude `largest`.
double bound(int roundings, DType dtype, double largest) {
  if (roundings == 0) return 0;
  const double in_f32 = 2 * roundings * 16 * std::ldexp(largest, -24);
  return dtype == f16 ? in_f32 + std::ldexp(largest, -10) : in_f32;
}

}  // namespace

TEST_CASE("every layer trains a step on the GPU as on the CPU") {
  for (const LayerCase& c : layer_cases())
    for (DType dtype : {f32, f16}) {
      const Step expected = train(c, dtype, Device::cpu()), found = train(c, dtype, gpu);
      REQUIRE(found.results.size() == expected.results.size());
      for (std::size_t i = 0; i < found.results.size(); ++i) {
        const auto& [name, wanted] = expected.results[i];
        const std::vector<double>& values = found.results[i].second;
        REQUIRE(values.size() == wanted.size());
        double largest = 0, difference = 0;
        bool all_finite = true;
        for (std::size_t k = 0; k < values.size(); ++k) {
          largest = std::max(largest, std::abs(wanted[k]));
          difference = std::max(difference, std::abs(values[k] - wanted[k]));
          all_finite = all_finite && std::isfinite(values[k]);
        }
        const double allowed = bound(c.roundings, dtype, largest);
        const std::string wrong = fmt::format("{} in {}: {} differs by {} from the CPU's, expected at most {}", c.name,
                                              name_of(dtype), name, difference, allowed);
        CHECK_MESSAGE((all_finite && difference <= allowed), wrong);
      }
    }
}

TEST_CASE("every layer of nn/ has a case") {
  std::set<std::string> names;
  for (const LayerCase& c : layer_cases()) names.insert(c.layer->name());
  CHECK(names == std::set<std::string>{
                     "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv2d",   "ConvTranspose2d",
                     "Dropout",           "ELU",       "Embedding",   "Flatten",     "GELU",     "Identity",
                     "LayerNorm",         "LeakyReLU", "Linear",      "MaxPool2d",   "ReLU",     "Residual",
                     "Sequential",        "SiLU",      "Sigmoid",     "Softmax",     "Softplus", "Tanh"});
}
