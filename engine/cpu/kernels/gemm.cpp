// One block of a matrix product, and the few-rows case as dot products.

#include "engine/cpu/kernels/gemm.h"

#include "engine/cpu/kernels/packing.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

// Adds the bias to finished sums, rounds them to T and writes them to c, where they begin at (i0, j0).
template <class T>
void finish_tile(const GemmProblem<T>& p, const float* sums, std::ptrdiff_t sums_row, std::int64_t i0, std::int64_t j0,
                 std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      const std::int64_t width = minimum(kLanes, columns - j);
      vfloat sum = load(sums + i * sums_row + j);
      if (p.bias != nullptr) {
        const T* bias = p.bias + (i0 + i) * p.bias_row + (j0 + j) * p.bias_col;
        if (p.bias_col == 1) {
          sum += load_n(bias, width);
        } else {
          for (std::int64_t l = 0; l < width; ++l) sum[l] += to_float(bias[l * p.bias_col]);
        }
      }
      T* c = p.c + (i0 + i) * p.c_row + (j0 + j) * p.c_col;
      if (p.c_col == 1) {
        store_n(c, sum, width);
      } else {
        for (std::int64_t l = 0; l < width; ++l) convert(sum[l], c[l * p.c_col]);
      }
    }
  }
}

// The product, kGemmBlockDepth of k at a time: pack that much of b, prepare that much of a, then one micro-kernel per
// tile of c.
template <class T>
void block(const GemmProblem<T>& p, float* scratch) {
  constexpr bool is_float = sizeof(T) == sizeof(float);
  const std::int64_t passes = (p.k + kGemmBlockDepth - 1) / kGemmBlockDepth;
  const std::int64_t max_depth = passes > 1 ? (p.k + passes - 1) / passes : p.k;
  const Panels panels(p.m);

  // b is read once when all of a's rows fit in one tile: packing it would not pay.
  const bool b_in_place = is_float && p.b_col == 1 && panels.count == 1;

  // Sums go straight to c if they may be stored there as they are. Otherwise to `sums`: the whole block if k takes
  // several passes, else one tile that is finished right away.
  const bool c_in_place = is_float && p.c_col == 1 && p.bias == nullptr;
  alignas(64) float one_tile[kTileRows * kTileColumns];
  const std::ptrdiff_t sums_row = passes > 1 ? round_up(p.n, kTileColumns) : kTileColumns;

  float* packed_b = scratch;
  float* sums = packed_b + max_depth * round_up(p.n, kTileColumns);
  float* a_copy = sums + (passes > 1 ? p.m * sums_row : 0);

  std::int64_t k0 = 0;
  do {  // at least once: with k = 0 the micro-kernels write zeros
    const std::int64_t depth = minimum(max_depth, p.k - k0);
    const bool last = k0 + depth == p.k;
    const T* b = p.b + k0 * p.b_row;
    const std::int64_t direct_columns = b_in_place ? p.n / kTileColumns * kTileColumns : 0;
    pack_panels(packed_b, b + direct_columns * p.b_col, p.b_row, p.b_col, depth, p.n - direct_columns);
    const Strided a = prepare_rows(a_copy, p.a + k0 * p.a_col, p.a_row, p.a_col, p.m, depth, p.n > kTileColumns);

    for (std::int64_t j = 0; j < p.n; j += kTileColumns) {
      const std::int64_t columns = minimum(kTileColumns, p.n - j);
      const bool whole_vectors = columns % kLanes == 0;
      Tile tile = {};
      tile.a_row = a.row;
      tile.a_depth = a.col;
      tile.b = packed_b + (j - direct_columns) * depth;
      tile.b_depth = kTileColumns;
      if constexpr (is_float) {
        if (j < direct_columns) {
          tile.b = b + j;
          tile.b_depth = p.b_row;
        }
      }
      tile.depth = depth;
      tile.segments = kOneSegment;
      tile.segment_count = 1;
      tile.accumulate = k0 > 0;

      for (std::int64_t panel = 0; panel < panels.count; ++panel) {
        const std::int64_t i = panels.begin(panel), rows = panels.height(panel);
        tile.a = a.data + i * a.row;
        bool to_c = false;
        if constexpr (is_float) {
          if (c_in_place && whole_vectors) {
            to_c = true;
            tile.c = p.c + i * p.c_row + j;
            tile.c_row = p.c_row;
          }
        }
        if (!to_c) {
          tile.c = passes > 1 ? sums + i * sums_row + j : one_tile;
          tile.c_row = sums_row;
        }
        run_tile(rows, columns, tile);
        if (!to_c && last) finish_tile(p, tile.c, tile.c_row, i, j, rows, columns);
      }
    }
    k0 += depth;
  } while (k0 < p.k);
}

// One column of c: kRows dot products of rows of a with a column of b.
template <int kRows, class T>
void dot_column(const GemmProblem<T>& p, std::int64_t j) {
  const T* b = p.b + j * p.b_col;
  // Several sums per row, because an addition takes four cycles and two can begin in each.
  constexpr int kSums = kRows == 1 ? 8 : 2;
  vfloat sum[kRows][kSums];
  unroll<kRows>([&](auto i) HALFGRAD_LAMBDA { unroll<kSums>([&](auto s) HALFGRAD_LAMBDA { sum[i][s] = vfloat{}; }); });
  std::int64_t k = 0;
  for (; k + kSums * kLanes <= p.k; k += kSums * kLanes)
    unroll<kSums>([&](auto s) HALFGRAD_LAMBDA {
      const std::int64_t at = k + s * kLanes;
      const vfloat column = load(b + at);
      unroll<kRows>(
          [&](auto i) HALFGRAD_LAMBDA { sum[i][s] = fma(load(p.a + i * p.a_row + at), column, sum[i][s]); });
    });
  for (; k < p.k; k += kLanes) {
    const std::int64_t width = minimum(kLanes, p.k - k);
    const vfloat column = load_n(b + k, width);
    unroll<kRows>(
        [&](auto i) HALFGRAD_LAMBDA { sum[i][0] = fma(load_n(p.a + i * p.a_row + k, width), column, sum[i][0]); });
  }
  unroll<kRows>([&](auto i) HALFGRAD_LAMBDA {
    vfloat total = sum[i][0];
    for (int s = 1; s < kSums; ++s) total += sum[i][s];
    alignas(64) float result[kLanes] = {sum_of_lanes(total)};
    finish_tile(p, result, kLanes, i, j, 1, 1);
  });
}

template <class T>
void dots(const GemmProblem<T>& p) {
  for (std::int64_t j = 0; j < p.n; ++j) switch (p.m) {
      case 1: dot_column<1>(p, j); break;
      case 2: dot_column<2>(p, j); break;
      case 3: dot_column<3>(p, j); break;
      case 4: dot_column<4>(p, j); break;
    }
}

}  // namespace

GemmKernels gemm_kernels() { return {block<float>, block<half_bits>, dots<float>, dots<half_bits>}; }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
