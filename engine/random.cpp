#include "engine/random.h"

#include <numeric>
#include <utility>

#include "engine/error.h"
#include "engine/philox.h"

namespace halfgrad {

uint64_t Generator::reserve(uint64_t counters) {
  const uint64_t first = state_.offset;
  state_.offset += counters;
  return first;
}

uint32_t Generator::next_uint32() { return random_block(state_.seed, reserve(1)).lane[0]; }

double Generator::next_uniform() {
  const uint64_t counter = reserve(1);
  return uniform_double(random_block(state_.seed, counter).lane[0], random_block(state_.seed, counter, 1).lane[0]);
}

uint64_t Generator::next_below(uint64_t bound) {
  check(bound > 0, "next_below: the bound is 0, so there is no number below it; give a bound of at least 1");
  return uniform_below(state_.seed, reserve(1), 0, bound);
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

std::vector<int64_t> random_permutation(int64_t n, Generator& generator) {
  check(n >= 0, "random_permutation: n is {}, expected the number of elements, at least 0", n);
  std::vector<int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  // Each place from the last on gets one of the elements that are still before it or in it.
  for (std::size_t place = order.size(); place > 1; --place) {
    std::swap(order[place - 1], order[generator.next_below(place)]);
  }
  return order;
}

}  // namespace halfgrad
