#include "engine/ops/dropout.h"

#include "engine/ops/elementwise.h"
#include "engine/random.h"

namespace halfgrad {

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "dropout: p is {}, expected a probability in [0, 1]", p);
  check(is_floating(x.dtype()), "dropout: x is {}, expected a float dtype", name_of(x.dtype()));
  if (!training || p == 0) return x;
  Tensor mask = empty(x.shape(), x.dtype(), x.device());
  Generator& generator = default_generator();
  const auto counters = static_cast<std::uint64_t>((x.numel() + 3) / 4);
  backend_for(x.device())
      .random(Distribution::bernoulli, mask.view_of_data(), 1 - p, 0, generator.seed(), generator.reserve(counters));
  // Scaled after the mask, which is exact: f16 is rounded once.
  return x * mask * (p < 1 ? 1 / (1 - p) : 0);
}

}  // namespace halfgrad
