#pragma once

#include <cstdint>

// Random numbers without a state: Philox4x32-10, a function that turns a counter and a key into 128
// random bits (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// Element i of a tensor needs only its own counter, so that any number of threads, on the CPU or on a
// GPU, compute the same numbers in any order. The seed is the key; who uses which counters is kept by
// Generator in random.h.
//
// A fill that starts at counter `offset` gives element i the random bits of lane i % 4 in the block at
// counter offset + i / 4, and so needs (n + 3) / 4 counters for n elements of any type. Where 32 bits are
// not enough (doubles, integers below more than 2^32), the same lane of the block's next variant gives
// 32 more. A normal number comes from a pair: lanes 0 and 1 make elements 0 and 1, lanes 2 and 3 the others.
//
// Everything here gives the same bits wherever it is compiled: integer arithmetic, or floating-point
// operations that IEEE 754 defines exactly, each fused multiply-add written out, so that no compiler is
// free to fuse one or not. They are the compiler's builtins, not the functions of <cmath>: a copy of an inline function
// that was compiled for AVX512 must not become the one that the linker keeps for every instruction set.

// Always inlined for the same reason as in half.h. In CUDA code, nvcc needs --expt-relaxed-constexpr.
#if defined(__CUDACC__)
#define HALFGRAD_PHILOX_INLINE __host__ __device__ __forceinline__
#else
#define HALFGRAD_PHILOX_INLINE [[gnu::always_inline]] inline
#endif

namespace halfgrad {

struct PhiloxBlock {
  uint32_t lane[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

// The random block that belongs to this counter and key.
HALFGRAD_PHILOX_INLINE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  uint32_t c0 = counter.lane[0], c1 = counter.lane[1], c2 = counter.lane[2], c3 = counter.lane[3];
  uint32_t k0 = key.word[0], k1 = key.word[1];
  for (int round = 0; round < 10; ++round) {
    // A product's high half depends on all bits of its factor, so each round spreads every bit further.
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;  // the golden ratio
    k1 += 0xBB67AE85;  // sqrt(3) - 1
  }
  return {{c0, c1, c2, c3}};
}

// The block at one counter of the stream of random numbers that belongs to `seed`. `variant` gives
// further blocks at the same counter, for the rare element that needs more than one.
HALFGRAD_PHILOX_INLINE constexpr PhiloxBlock random_block(uint64_t seed, uint64_t counter, uint64_t variant = 0) {
  return philox4x32_10({{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                         static_cast<uint32_t>(variant), static_cast<uint32_t>(variant >> 32)}},
                       {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}});
}

// Uniform in [0, 1): a multiple of 2^-digits. For halves take digits = 11: a float with 24 digits could
// round to the half 1.
HALFGRAD_PHILOX_INLINE constexpr float uniform_float(uint32_t random, int digits = 24) {
  return static_cast<float>(random >> (32 - digits)) / static_cast<float>(uint32_t{1} << digits);
}

// Uniform in [0, 1): a multiple of 2^-53. The first 24 bits are those of uniform_float(high).
HALFGRAD_PHILOX_INLINE constexpr double uniform_double(uint32_t high, uint32_t low) {
  const uint64_t random = static_cast<uint64_t>(high >> 5) << 26 | low >> 6;
  return static_cast<double>(random) * 0x1p-53;
}

// Uniform in 0 ... bound - 1 without bias, for element i of a fill at `offset`; bound > 0.
//
// 32 random bits cannot be shared out evenly among, say, three results: the left-over draws are
// rejected. Another try takes the next variant of the same block, so that one element's bad luck does
// not shift the numbers of the elements after it.
HALFGRAD_PHILOX_INLINE constexpr uint64_t uniform_below(uint64_t seed, uint64_t offset, uint64_t i, uint64_t bound) {
  const uint64_t counter = offset + i / 4;
  const int lane = static_cast<int>(i % 4);
  for (uint64_t attempt = 0;; ++attempt) {
    const uint64_t low = random_block(seed, counter, 2 * attempt).lane[lane];
    if (bound <= uint64_t{1} << 32) {
      // low * bound / 2^32 is in range. 2^32 % bound of the draws are too many: reject those whose
      // product has the smallest fractions (Lemire, "Fast random integer generation in an interval", 2019).
      const uint64_t product = low * bound;
      const uint64_t fraction = product & 0xFFFFFFFF;
      if (fraction >= bound || fraction >= (uint64_t{1} << 32) % bound) return product >> 32;
    } else {
      const uint64_t high = random_block(seed, counter, 2 * attempt + 1).lane[lane];
      const uint64_t random = high << 32 | low;
      const uint64_t left_over = (0 - bound) % bound;  // 2^64 % bound
      if (random >= left_over) return random % bound;
    }
  }
}

struct NormalPair {
  float first, second;
};

// Two independent numbers with mean 0 and variance 1 (Box and Muller, 1958): a point of the plane whose
// squared radius is -2 log(u) and whose angle is uniform has normally distributed coordinates.
//
// u = (a + 1) / 2^32 lies in (0, 1] and is never 0, so that its logarithm is finite: no result is beyond
// sqrt(2 log(2^32)) = 6.66. The smallest u is far above the subnormal floats, and at u = 1 both are 0.
//
// Logarithm and sine are short polynomials of our own, because those of the C library and of CUDA differ
// in their last bits. The error of a result is below 1e-6, beside the rounding of u to float.
HALFGRAD_PHILOX_INLINE NormalPair normal_pair(uint32_t a, uint32_t b) {
  // a + 1 = m * 2^(exponent + 32) with m in [sqrt(1/2), sqrt(2)): what lies above the bits of sqrt(1/2)
  // in the exponent field goes to the exponent.
  constexpr uint32_t sqrt_half = 0x3F3504F3;
  const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(static_cast<uint64_t>(a) + 1));
  const uint32_t shift = (bits - sqrt_half) >> 23;
  const auto m = __builtin_bit_cast(float, bits - (shift << 23));
  const float exponent = static_cast<float>(shift) - 32;

  // log(m) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), |s| < 0.172.
  const float s = (m - 1) / (m + 1);
  const float s2 = s * s;
  float series = __builtin_fmaf(s2, 1.0F / 9, 1.0F / 7);
  series = __builtin_fmaf(s2, series, 1.0F / 5);
  series = __builtin_fmaf(s2, series, 1.0F / 3);
  const float log_m = 2 * __builtin_fmaf(s * s2, series, s);
  const float radius = __builtin_sqrtf(-2 * __builtin_fmaf(exponent, 0x1.62e43p-1F, log_m));  // times log(2)

  // The angle is b / 2^32 of a turn: the nearest quarter turn, and x in [-pi/4, pi/4) beyond it.
  const uint32_t quarter = (b + (uint32_t{1} << 29)) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(b - (quarter << 30))) * 0x1.921fb6p-30F;  // pi / 2^31
  const float x2 = x * x;
  float sine = __builtin_fmaf(x2, 1.0F / 362880, -1.0F / 5040);
  sine = __builtin_fmaf(x2, sine, 1.0F / 120);
  sine = __builtin_fmaf(x2, sine, -1.0F / 6);
  sine = __builtin_fmaf(x * x2, sine, x);
  float cosine = __builtin_fmaf(x2, 1.0F / 40320, -1.0F / 720);
  cosine = __builtin_fmaf(x2, cosine, 1.0F / 24);
  cosine = __builtin_fmaf(x2, cosine, -0.5F);
  cosine = __builtin_fmaf(x2, cosine, 1.0F);

  // Turn by the quarter turns.
  const float along = quarter % 2 == 0 ? cosine : -sine;
  const float across = quarter % 2 == 0 ? sine : cosine;
  const float direction = quarter % 4 < 2 ? radius : -radius;
  return {direction * along, direction * across};
}

}  // namespace halfgrad

#undef HALFGRAD_PHILOX_INLINE
