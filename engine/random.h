#pragma once

#include <cstdint>
#include <vector>

namespace halfgrad {

// All there is to a Generator: what a checkpoint saves.
struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  bool operator==(const GeneratorState&) const = default;
};

// Hands out the counters of one stream of random numbers (see philox.h): every counter once, in order.
// The same seed and the same sequence of calls give the same numbers, on every device and with any number
// of threads. Not synchronised: use one generator from one thread at a time.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_{.seed = seed, .offset = 0} {}

  // Starts the stream of this seed from its beginning.
  void manual_seed(uint64_t seed) { state_ = {.seed = seed, .offset = 0}; }
  uint64_t seed() const { return state_.seed; }

  GeneratorState state() const { return state_; }
  void set_state(const GeneratorState& state) { state_ = state; }

  // Takes the next `counters` counters and returns the first. A fill of n elements takes (n + 3) / 4.
  uint64_t reserve(uint64_t counters);

  // Single numbers for host code, such as shuffles. Each takes one counter and leaves the rest of its
  // block unused, so that the state stays these two numbers.
  uint32_t next_uint32();
  // In [0, 1), a multiple of 2^-53.
  double next_uniform();
  // In 0 ... bound - 1, without bias. Error if bound is 0.
  uint64_t next_below(uint64_t bound);

 private:
  GeneratorState state_;
};

// The generator of every operation that is not given another one. Its seed is 0 until manual_seed.
Generator& default_generator();

// Seeds the default generator.
void manual_seed(uint64_t seed);

// 0 ... n - 1 in random order, each order equally likely (Fisher and Yates). Error if n is negative.
std::vector<int64_t> random_permutation(int64_t n, Generator& generator = default_generator());

}  // namespace halfgrad
