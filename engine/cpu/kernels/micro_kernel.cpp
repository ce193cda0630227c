#include "engine/cpu/kernels/micro_kernel.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

template <int kRows, int kVectors>
[[gnu::noinline]] void micro_kernel(const Tile& tile) {
  vfloat sum[kRows][kVectors];
  unroll<kRows>([&](auto i) HALFGRAD_LAMBDA {
    unroll<kVectors>([&](auto j) HALFGRAD_LAMBDA { sum[i][j] = vfloat{}; });
    __builtin_prefetch(tile.c + i * tile.c_row, 1);
    __builtin_prefetch(tile.c + i * tile.c_row + (kVectors - 1) * kLanes, 1);
  });

  // There are not enough registers for the address of every row of A. Keep that of every third; the next two
  // are at one and two strides from it.
  constexpr int kGroup = 3;
  const float* group[(kRows + kGroup - 1) / kGroup];
  unroll<(kRows + kGroup - 1) / kGroup>([&](auto g) HALFGRAD_LAMBDA { group[g] = tile.a + g * kGroup * tile.a_row; });
  const std::ptrdiff_t step[kGroup] = {0, tile.a_row, 2 * tile.a_row};

  const float* b = tile.b;
  for (std::ptrdiff_t s = 0; s < tile.segment_count; ++s) {
    std::ptrdiff_t at = tile.segments[s];
    for (std::ptrdiff_t k = 0; k < tile.depth; ++k, at += tile.a_depth, b += tile.b_depth) {
      vfloat row[kVectors];
      unroll<kVectors>([&](auto j) HALFGRAD_LAMBDA { row[j] = load(b + j * kLanes); });
      unroll<kRows>([&](auto i) HALFGRAD_LAMBDA {
        const vfloat a = broadcast(group[i / kGroup][at + step[i % kGroup]]);
        unroll<kVectors>([&](auto j) HALFGRAD_LAMBDA { sum[i][j] = fma(a, row[j], sum[i][j]); });
      });
    }
  }

  // `tile` is copied into variables, or else every store to c would make the compiler read it again.
  float* const c = tile.c;
  const std::ptrdiff_t c_row = tile.c_row;
  const auto for_each_sum = [&](auto f) HALFGRAD_LAMBDA {
    unroll<kRows>([&](auto i) HALFGRAD_LAMBDA {
      unroll<kVectors>([&](auto j) HALFGRAD_LAMBDA { f(sum[i][j], c + i * c_row + j * kLanes); });
    });
  };
  if (tile.accumulate) {
    for_each_sum([](vfloat x, float* to) HALFGRAD_LAMBDA { store(to, x + load(to)); });
  } else {
    for_each_sum([](vfloat x, float* to) HALFGRAD_LAMBDA { store(to, x); });
  }
}

template <int... I>
constexpr MicroKernels instantiate(Indices<I...>) {
  static_assert(kTileVectors == 2);
  return {{{&micro_kernel<I + 1, 1>...}, {&micro_kernel<I + 1, 2>...}}};
}

}  // namespace

constinit const MicroKernels micro_kernels = instantiate(CountUp<kTileRows>::type{});

}  // namespace halfgrad::cpu::HALFGRAD_ISA
