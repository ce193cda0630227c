// The bounds of engine/math.h at every 127th of the 2^32 floats, or with HALFGRAD_ALL_FLOATS=1 at each of them,
// which takes long.

#include <doctest/doctest.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "engine/cpu/parallel.h"
#include "tests/engine/math_functions.h"

using namespace halfgrad;

TEST_CASE("functions of vectors are as exact as math.h says at all floats") {
  constexpr std::int64_t kFloats = std::int64_t{1} << 32, kChunk = 1 << 16;
  const char* const all = std::getenv("HALFGRAD_ALL_FLOATS");
  const std::int64_t step = all && std::string_view(all) == "1" ? 1 : 127;
  for (const testing::MathFunction& f : testing::kMathFunctions) {
    CAPTURE(f.name);
    std::mutex mutex;
    double worst = 0;
    float at = 0;
    cpu::parallel_for((kFloats + step - 1) / step, kChunk, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> x, y(static_cast<std::size_t>(end - begin));
      for (std::int64_t i = begin; i < end; ++i)
        x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(i * step)));
      testing::evaluate(cpu::kernels(), f, x.data(), y.data(), end - begin);
      double worst_here = 0;
      float at_here = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (const double error = testing::error_in_ulps(y[i], f.exact(x[i])); !(error <= worst_here))
          worst_here = error, at_here = x[i];
      const std::lock_guard lock(mutex);
      if (!(worst_here <= worst)) worst = worst_here, at = at_here;
    });
    CAPTURE(at);
    MESSAGE(f.name, ": at most ", worst, " units in the last place");
    CHECK(worst <= f.ulps);
  }
}
