// The functions of engine/math.h on a GPU and on the CPU: all halves, and many floats.

#include <doctest/doctest.h>

#include <bit>
#include <limits>

#include "engine/ops/elementwise.h"
#include "tests/cuda/ulps.h"
#include "tests/ops/registry.h"

using namespace halfgrad;
using namespace halfgrad::testing;

namespace {

struct Function {
  const char* name;
  Tensor (*function)(const Tensor&);
};
#define FUNCTION(name)                                       \
  {                                                          \
#name, [](const Tensor& x) { return halfgrad::name(x); } \
  }
const Function kFunctionsOfOne[] = {
    FUNCTION(cos),      FUNCTION(elu),  FUNCTION(erf),
    FUNCTION(erfc),     FUNCTION(exp),  FUNCTION(expm1),
    FUNCTION(gelu),     FUNCTION(log),  FUNCTION(log1p),
    FUNCTION(sigmoid),  FUNCTION(silu), FUNCTION(sin),
    FUNCTION(softplus), FUNCTION(tanh), {"pow", [](const Tensor& x) { return pow(abs(x), 2.5); }}};
#undef FUNCTION

std::vector<float> floats_all_over() {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < 0x1p32; bits += 40009)  // a prime: all bits vary
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const float edge : {0.0F, 0x1p-126F, 0.5F, 0.625F, 0.8F, 1.13F, 2.0F / 3, 1.0F, 4.0F / 3, 10.05F, 88.72284F,
                           104.0F, math::kLargestAngle, std::numeric_limits<float>::infinity()})
    for (int step = -8; step <= 8; ++step) {
      x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(edge) + static_cast<std::uint32_t>(step)));
      x.push_back(-x.back());
    }
  return x;
}

template <class T>
void compare(const Tensor& x) {
  const Tensor on_gpu = x.to(Device::cuda());
  const std::vector<T> inputs = x.to_vector<T>();
  for (const Function& f : kFunctionsOfOne) {
    const Tensor y = f.function(x), y_of_gpu = f.function(on_gpu);
    const std::vector<T> expected = y.to_vector<T>(), found = y_of_gpu.to_vector<T>();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::uint64_t ulps = ulps_of_function(f.name, x.dtype(), static_cast<double>(inputs[i]));
      if (!agree_in_ulps(found[i], expected[i], ulps) && wrong++ == 0)
        FAIL_CHECK(fmt::format("{}({}) is {}, on the CPU {}, expected within {} ulp", f.name,
                               static_cast<double>(inputs[i]), static_cast<double>(found[i]),
                               static_cast<double>(expected[i]), ulps));
    }
    CHECK_MESSAGE(wrong == 0, fmt::format("{}: {} numbers are wrong", f.name, wrong));
  }
}

}  // namespace

TEST_CASE("functions of every half agree with the CPU's") {
  std::vector<half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = half::from_bits(static_cast<std::uint16_t>(i));
  compare<half>(from_vector(all));
}

TEST_CASE("functions of floats all over the number line agree with the CPU's") {
  compare<float>(from_vector(floats_all_over()));
}

TEST_CASE("functions of many numbers agree with the CPU's") {
  for (double range : {1.0, 12.0}) {
    compare<float>(uniform({50000}, -range, range, 3).to(f32));
    compare<double>(uniform({5000}, -range, range, 5));
  }
}
