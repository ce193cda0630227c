// Fills from the counter-based generator, some counters at a time, so that the compiler makes vectors of
// them. All instruction sets give the same bits, because philox.h does.

#include "engine/cpu/kernels/random.h"

#include "engine/cpu/simd.h"
#include "engine/philox.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

constexpr int kCounters = 64;
constexpr int kNumbers = 4 * kCounters;

// The 32 bits of the fill's elements begin ... begin + kNumbers.
void random_bits(const RandomFill& fill, std::int64_t begin, std::uint64_t variant, std::uint32_t* bits) {
  const std::uint64_t first = fill.offset + static_cast<std::uint64_t>(begin) / 4;
  for (int i = 0; i < kCounters; ++i) {
    const PhiloxBlock block = random_block(fill.seed, first + static_cast<std::uint64_t>(i), variant);
    for (int lane = 0; lane < 4; ++lane) bits[4 * i + lane] = block.lane[lane];
  }
}

// Each writes kNumbers numbers for elements begin ... in the type of the arithmetic: f32, or f64 for f64.
// `digits` is how many bits of a random number the result's type can hold.
struct Uniform {
  static void numbers(const RandomFill& fill, std::int64_t begin, int digits, float* y) {
    std::uint32_t bits[kNumbers];
    random_bits(fill, begin, 0, bits);
    const UniformNumbers<float> number(fill);
    for (int i = 0; i < kNumbers; ++i) y[i] = number(uniform_float(bits[i], digits));
  }
  static void numbers(const RandomFill& fill, std::int64_t begin, int, double* y) {
    std::uint32_t high[kNumbers], low[kNumbers];
    random_bits(fill, begin, 0, high);
    random_bits(fill, begin, 1, low);
    const UniformNumbers<double> number(fill);
    for (int i = 0; i < kNumbers; ++i) y[i] = number(uniform_double(high[i], low[i]));
  }
};

struct Normal {
  template <class C>
  static void numbers(const RandomFill& fill, std::int64_t begin, int, C* y) {
    std::uint32_t bits[kNumbers];
    random_bits(fill, begin, 0, bits);
    const NormalNumbers<C> number(fill);
    for (int i = 0; i < kNumbers; i += 2) {
      const NormalPair pair = normal_pair(bits[i], bits[i + 1]);
      y[i] = number(pair.first);
      y[i + 1] = number(pair.second);
    }
  }
};

struct Bernoulli {
  template <class C>
  static void numbers(const RandomFill& fill, std::int64_t begin, int, C* y) {
    std::uint32_t bits[kNumbers];
    random_bits(fill, begin, 0, bits);
    const BernoulliNumbers<C> number(fill);
    for (int i = 0; i < kNumbers; ++i) y[i] = number(bits[i]);
  }
};

HALFGRAD_INLINE void write(const float* from, half_bits* to, std::int64_t n) { float_to_half(from, to, n); }
template <class T>
HALFGRAD_INLINE void write(const T* from, T* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
}

template <class Distribution, class C, int kDigits, class T>
void fill(const RandomFill& fill, std::int64_t begin, std::int64_t end, T* y) {
  C numbers[kNumbers];
  for (std::int64_t i = begin; i < end; i += kNumbers) {
    Distribution::numbers(fill, i, kDigits, numbers);
    write(numbers, y + (i - begin), end - i < kNumbers ? end - i : kNumbers);
  }
}

template <class Distribution>
FillKernels fill_kernels() {
  return {fill<Distribution, float, 11, half_bits>, fill<Distribution, float, 24, float>,
          fill<Distribution, double, 53, double>};
}

}  // namespace

RandomKernels random_kernels() { return {fill_kernels<Uniform>(), fill_kernels<Normal>(), fill_kernels<Bernoulli>()}; }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
