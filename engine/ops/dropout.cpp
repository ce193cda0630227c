#include "engine/ops/dropout.h"

#include "engine/autograd.h"
#include "engine/random.h"

namespace halfgrad {
namespace {

// Which elements stay is told by the random numbers from a counter on. So the gradient, which multiplies dy by what x was
// multiplied by, is dropout of dy with the same numbers: nothing is kept but where they begin.
Tensor drop(const Tensor& x, double p, std::uint64_t seed, std::uint64_t offset) {
  Tensor y = empty_like(x);
  backend_for(x.device()).dropout(y.view_of_data(), x.view_of_data(), p, seed, offset);
  return record("dropout", y, {x}, [=](const Tensor& dy) { return Tensors{drop(dy, p, seed, offset)}; });
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "dropout: p is {}, expected a probability in [0, 1]", p);
  check(is_floating(x.dtype()), "dropout: x is {}, expected a float dtype", name_of(x.dtype()));
  if (!training || p == 0) return x;
  Generator& generator = default_generator();
  const auto counters = static_cast<std::uint64_t>((x.numel() + 3) / 4);
  const std::uint64_t offset = generator.reserve(counters);
  return drop(x, p, generator.seed(), offset);
}

}  // namespace halfgrad
