#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>

#include "engine/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace {

using halfgrad::float_to_half_bits;

constexpr uint32_t infinity_bits = 0x7F800000;

// What one thread saw. doctest's own checks stay in the main thread.
struct Result {
  int64_t wrong = 0;
  uint32_t first = 0;  // bits of the first float that was converted wrongly
  void expect(bool right, uint32_t bits) {
    if (!right && wrong++ == 0) first = bits;
  }
};

// Midway between a positive half and the next, where 65536 stands in for the infinity after 65504.
float middle_after(uint16_t half_bits) {
  const double low = halfgrad::half_bits_to_float(half_bits);
  const double high = half_bits == 0x7BFF ? 65536 : halfgrad::half_bits_to_float(half_bits + 1);
  return static_cast<float>((low + high) / 2);
}

// All floats of one sign in the order of their magnitude. The right half is known without converting
// anything: it moves on to the next one where the floats pass the middle between both.
Result walk(uint32_t sign) {
  Result result;
  uint16_t want = 0;
  float middle = middle_after(want);
  const auto sign_of_half = static_cast<uint16_t>(sign >> 16);
  for (uint32_t bits = 0; bits <= infinity_bits; ++bits) {
    const auto magnitude = std::bit_cast<float>(bits);
    while (want < 0x7C00 && (magnitude > middle || (magnitude == middle && want % 2 == 1))) {
      ++want;
      if (want < 0x7C00) middle = middle_after(want);
    }
    result.expect(float_to_half_bits(std::bit_cast<float>(sign | bits)) == (sign_of_half | want), sign | bits);
  }
  for (uint32_t bits = infinity_bits + 1; bits < 0x80000000; ++bits) {
    const uint16_t got = float_to_half_bits(std::bit_cast<float>(sign | bits));
    // Quiet, with its sign and the upper bits of its payload.
    const auto want_nan = static_cast<uint16_t>(sign_of_half | 0x7E00 | (bits >> 13 & 0x3FF));
    result.expect(got == want_nan, sign | bits);
  }
  return result;
}

#if defined(__x86_64__)
// By CPUID, because Clang 14's __builtin_cpu_supports does not know F16C. Its question about AVX includes
// whether the operating system saves the registers.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The same floats against the conversion instructions, eight at a time.
[[gnu::target("avx,f16c")]] Result compare_with_hardware(uint32_t sign) {
  Result result;
  for (uint32_t start = 0; start < 0x80000000; start += 8) {
    alignas(32) std::array<float, 8> floats;
    alignas(16) std::array<uint16_t, 8> halves;
    for (uint32_t i = 0; i < 8; ++i) floats[i] = std::bit_cast<float>(sign | (start + i));
    _mm_store_si128(reinterpret_cast<__m128i*>(halves.data()),
                    _mm256_cvtps_ph(_mm256_load_ps(floats.data()), _MM_FROUND_TO_NEAREST_INT));
    for (uint32_t i = 0; i < 8; ++i) {
      result.expect(float_to_half_bits(floats[i]) == halves[i], sign | (start + i));
    }
  }
  return result;
}
#endif

// One thread for the positive floats and one for the negative ones.
void check_both_signs(Result (*test)(uint32_t sign)) {
  std::array<Result, 2> results;
  {
    std::thread negative([&] { results[1] = test(0x80000000); });
    results[0] = test(0);
    negative.join();
  }
  for (const Result& result : results) {
    INFO("bits of the first wrong float: ", result.first);
    CHECK(result.wrong == 0);
  }
}

}  // namespace

TEST_CASE("half: each of the 2^32 floats becomes the nearest half") { check_both_signs(walk); }

TEST_CASE("half: each of the 2^32 floats becomes what the CPU's own instruction makes of it") {
#if defined(__x86_64__)
  if (!cpu_has_f16c()) {
    MESSAGE("skipped: this CPU has no F16C instructions");
    return;
  }
  check_both_signs(compare_with_hardware);
#else
  MESSAGE("skipped: F16C instructions exist only on x86");
#endif
}
