// Fills from the counter-based generator, as many counters at a time as there are lanes. All instruction sets give the
// same bits, those that philox.h defines.

#include "engine/cpu/kernels/random.h"

#include "engine/cpu/kernels/lanes.h"
#include "engine/philox.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

constexpr int kCounters = 64;
constexpr int kNumbers = 4 * kCounters;

// The words of Philox, each in the low half of a 64-bit lane. What the high halves hold does no harm: a multiplication
// reads the low halves alone, and fills the lane with the whole product.
typedef std::uint64_t vwide __attribute__((vector_size(kLanes * 4)));
constexpr int kWideLanes = kLanes / 2;

HALFGRAD_INLINE vwide product(vwide x, std::uint32_t factor) {
  const vwide factors = vwide{} + factor;
#if defined(__AVX512F__)
  return (vwide)_mm512_maskz_mul_epu32(0xFF, (__m512i)x, (__m512i)factors);
#elif defined(HALFGRAD_AVX2)
  return (vwide)_mm256_mul_epu32((__m256i)x, (__m256i)factors);
#elif defined(__SSE2__)
  return (vwide)_mm_mul_epu32((__m128i)x, (__m128i)factors);
#else
  return (x & 0xFFFFFFFF) * factors;
#endif
}

// The high half of each lane in its low half. A shuffle, since shifts would wait for the ports of the multiplications.
template <int... I>
HALFGRAD_INLINE vwide high_halves(vwide x, Indices<I...>) {
  return (vwide)__builtin_shufflevector((vuint)x, (vuint)x, (I | 1)...);
}
HALFGRAD_INLINE vwide high_halves(vwide x) { return high_halves(x, typename CountUp<kLanes>::type{}); }

// x0, y0, x1, y1, ...
template <int... I>
HALFGRAD_INLINE void store_interleaved(std::uint32_t* to, vwide x, vwide y, Indices<I...>) {
  store_bits(to, __builtin_shufflevector(x, y, (I / 2 + I % 2 * kWideLanes)...));
  store_bits(to + kLanes, __builtin_shufflevector(x, y, (kWideLanes / 2 + I / 2 + I % 2 * kWideLanes)...));
}

// So many vectors of counters take each round together: a round waits for the one before, and its keys serve them all.
#if defined(__AVX512F__)
constexpr int kTogether = 4;
#else
constexpr int kTogether = 2;
#endif

// The 32 bits of the fill's elements begin ... begin + kNumbers: philox4x32_10 of philox.h for kCounters counters.
void random_bits(const RandomFill& fill, std::int64_t begin, std::uint64_t variant, std::uint32_t* bits) {
  vwide counter = vwide{} + (fill.offset + static_cast<std::uint64_t>(begin) / 4);
  for (int lane = 0; lane < kWideLanes; ++lane) counter[lane] += static_cast<std::uint64_t>(lane);
  const vwide variants = vwide{} + variant;
  for (int i = 0; i < kCounters; i += kTogether * kWideLanes) {
    vwide c0[kTogether], c1[kTogether], c2[kTogether], c3[kTogether];
    unroll<kTogether>([&](auto v) HALFGRAD_LAMBDA {
      c0[v] = counter;
      c1[v] = high_halves(counter);
      c2[v] = variants;
      c3[v] = high_halves(variants);
      counter += kWideLanes;
    });
    std::uint32_t key0 = static_cast<std::uint32_t>(fill.seed), key1 = static_cast<std::uint32_t>(fill.seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85) {
      unroll<kTogether>([&](auto v) HALFGRAD_LAMBDA {
        const vwide product0 = product(c0[v], 0xD2511F53), product1 = product(c2[v], 0xCD9E8D57);
        c0[v] = high_halves(product1) ^ c1[v] ^ key0;
        c1[v] = product1;
        c2[v] = high_halves(product0) ^ c3[v] ^ key1;
        c3[v] = product0;
      });
    }
    unroll<kTogether>([&](auto v) HALFGRAD_LAMBDA {
      store_interleaved(bits + 4 * (i + v * kWideLanes), (c0[v] & 0xFFFFFFFF) | c1[v] << 32,
                        (c2[v] & 0xFFFFFFFF) | c3[v] << 32, typename CountUp<kWideLanes>::type{});
    });
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
    const C number = static_cast<C>(fill.b);
    // Whole numbers below a * 2^32 are those below its ceiling.
    const double threshold = __builtin_ceil(fill.a * 0x1p32);
    if (threshold >= 0x1p32) {
      for (int i = 0; i < kNumbers; ++i) y[i] = number;
    } else {
      const auto below = static_cast<std::uint32_t>(threshold);
      for (int i = 0; i < kNumbers; ++i) y[i] = bits[i] < below ? number : C(0);
    }
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

template <class T>
void multiply(const RandomFill& fill, std::int64_t begin, std::int64_t end, T* y, const T* x) {
  Number<T> numbers[kNumbers];
  for (std::int64_t i = begin; i < end; i += kNumbers, x += kNumbers, y += kNumbers) {
    Bernoulli::numbers(fill, i, 0, numbers);
    map(y, end - i < kNumbers ? end - i : kNumbers,
        [&](std::int64_t k, std::int64_t n) HALFGRAD_LAMBDA { return load_n(x + k, n) * load_n(numbers + k, n); });
  }
}

}  // namespace

RandomKernels random_kernels() {
  return {fill_kernels<Uniform>(),
          fill_kernels<Normal>(),
          fill_kernels<Bernoulli>(),
          {multiply<half_bits>, multiply<float>, multiply<double>}};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
