#pragma once
// What the benchmarks share: a stopwatch that reports medians of several candidates side by side, and the speed limit
// of the machine.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "engine/cpu/parallel.h"

namespace bench {

/// Seconds since some moment in the past.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The middle one; NaN when there is none.
inline double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// How long median_seconds() measures each candidate: so many samples of about so many seconds. `best`: it reports the
/// best of them instead of the median.
struct Sampling {
  double seconds = 0.01;
  int samples = 21;
  bool best = false;
};
inline Sampling sampling;

/// What is timed; an empty one is a peer that is not there.
using Candidate = std::function<void()>;

/// Waits for what the candidates have asked for: nothing on a CPU, while a GPU still works when they have returned.
inline Candidate wait_for_work = [] {};

/// How many calls of f make a sample.
inline int calls_per_sample(const Candidate& f) {
  f();  // caches, page faults, threads
  wait_for_work();
  for (int calls = 1;; calls *= 2) {
    const double start = now();
    for (int i = 0; i < calls; ++i) f();
    wait_for_work();
    const double elapsed = now() - start;
    if (elapsed > sampling.seconds / 2) return std::max(1, static_cast<int>(calls * sampling.seconds / elapsed));
  }
}

/// Median seconds of one call of each candidate, NaN for an empty one. Their samples alternate, so that a machine that
/// is busy for a while slows all of them: the ratios can be trusted where the times cannot.
inline std::vector<double> median_seconds(const std::vector<Candidate>& candidates) {
  std::vector<int> calls;
  for (const Candidate& f : candidates) calls.push_back(f ? calls_per_sample(f) : 0);
  std::vector<std::vector<double>> times(candidates.size());
  for (int sample = 0; sample < sampling.samples; ++sample)
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      if (calls[c] == 0) continue;
      // The threads of a peer go on spinning for a while after its last call: not at the cost of the next candidate.
      if (halfgrad::cpu::num_threads() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (calls[c] > 1) candidates[c]();  // brings its data back into the caches
      wait_for_work();
      const double start = now();
      for (int i = 0; i < calls[c]; ++i) candidates[c]();
      wait_for_work();
      times[c].push_back((now() - start) / calls[c]);
    }
  std::vector<double> medians;
  for (const std::vector<double>& t : times)
    medians.push_back(sampling.best && !t.empty() ? *std::min_element(t.begin(), t.end()) : median(t));
  return medians;
}

/// The speed limit of arithmetic: f32 multiply-adds in registers alone, on all threads that
/// halfgrad::cpu::num_threads() allows. Needs a build for this machine (-march=native) to tell the truth.
class FmaPeak {
#if defined(__AVX512F__)
  static constexpr int kLanes = 16;
#elif defined(__AVX__)
  static constexpr int kLanes = 8;
#else
  static constexpr int kLanes = 4;
#endif
  typedef float vector __attribute__((vector_size(kLanes * 4)));
  static constexpr int kSums = 12, kSteps = 2000, kChunks = 64;

 public:
  /// What run() computes, a multiply-add counted as two operations.
  static constexpr double gflop = 2e-9 * kLanes * kSums * kSteps * kChunks;

  /// A candidate to measure beside others.
  static void run() {
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
  }

  /// GFLOP/s of the best of many runs.
  static double measure() {
    double best = INFINITY;
    for (int i = 0; i < 300; ++i) {
      const double start = now();
      run();
      best = std::min(best, now() - start);
    }
    return gflop / best;
  }
};

}  // namespace bench
