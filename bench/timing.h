#pragma once
// What the benchmarks share: a stopwatch that reports medians, and the speed limit of the machine.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/cpu/parallel.h"

namespace bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of one call of f, over `samples` samples of about `seconds` each.
template <class F>
double median_seconds(F&& f, double seconds = 0.02, int samples = 11) {
  f();  // caches, page faults, threads
  int repeats = 1;
  for (;;) {
    const double start = now();
    for (int i = 0; i < repeats; ++i) f();
    const double elapsed = now() - start;
    if (elapsed > seconds / 2) {
      repeats = std::max(1, static_cast<int>(repeats * seconds / elapsed));
      break;
    }
    repeats *= 2;
  }
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) {
    const double start = now();
    for (int i = 0; i < repeats; ++i) f();
    times.push_back((now() - start) / repeats);
  }
  std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
  return times[samples / 2];
}

/// f32 multiply-adds in registers alone, counted as two operations each: GFLOP/s of all threads that
/// halfgrad::cpu::num_threads() allows. Needs a build for this machine (-march=native) to tell the truth.
inline double fma_peak() {
#if defined(__AVX512F__)
  constexpr int kLanes = 16;
#elif defined(__AVX__)
  constexpr int kLanes = 8;
#else
  constexpr int kLanes = 4;
#endif
  typedef float vector __attribute__((vector_size(kLanes * 4)));
  constexpr int kSums = 12, kSteps = 2000, kChunks = 64;
  const double seconds = median_seconds([] {
    halfgrad::cpu::parallel_for(kChunks, 1, [](std::int64_t, std::int64_t) {
      vector s0 = {}, s1 = s0 + 1, s2 = s0 + 2, s3 = s0 + 3, s4 = s0 + 4, s5 = s0 + 5;
      vector s6 = s0 + 6, s7 = s0 + 7, s8 = s0 + 8, s9 = s0 + 9, s10 = s0 + 10, s11 = s0 + 11;
      vector x = vector{} + 0.5F, y = vector{} + 0.25F;
      for (int i = 0; i < kSteps; ++i) {
        asm volatile("" : "+x"(x), "+x"(y));  // the compiler may not know their values
        s0 = s0 * x + y, s1 = s1 * x + y, s2 = s2 * x + y, s3 = s3 * x + y;
        s4 = s4 * x + y, s5 = s5 * x + y, s6 = s6 * x + y, s7 = s7 * x + y;
        s8 = s8 * x + y, s9 = s9 * x + y, s10 = s10 * x + y, s11 = s11 * x + y;
      }
      vector sum = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11));
      asm volatile("" : "+x"(sum));
    });
  });
  return 2.0 * kLanes * kSums * kSteps * kChunks / seconds * 1e-9;
}

}  // namespace bench
