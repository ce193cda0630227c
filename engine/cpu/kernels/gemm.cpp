// One block of a matrix product, and the few-rows case as dot products.

#include "engine/cpu/kernels/gemm.h"

#include "engine/cpu/kernels/packing.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

// Rounds add_bias(sums[j], j, n), or `lowest` if that is more, to T and writes it to c[j], for all columns; n lanes of the
// bias are used.
template <class T, class Bias>
HALFGRAD_INLINE void finish_row(T* c, const float* sums, std::int64_t columns, float lowest, const Bias& add_bias) {
  std::int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) store(c + j, at_least(add_bias(load(sums + j), j, kLanes), lowest));
  if (j < columns) store_n(c + j, at_least(add_bias(load(sums + j), j, columns - j), lowest), columns - j);
}

// Adds the bias to finished sums, applies the activation, rounds them to T and writes them to c, where they begin at
// (i0, j0).
template <class T>
void finish_tile(const GemmProblem<T>& p, const float* sums, std::ptrdiff_t sums_row, std::int64_t i0, std::int64_t j0,
                 std::int64_t rows, std::int64_t columns) {
  // The strides are copied into variables, or else every store would make the compiler read them again.
  const std::ptrdiff_t c_row = p.c_row, c_col = p.c_col, bias_row = p.bias_row, bias_col = p.bias_col;
  const float lowest = p.lowest;
  T* c = p.c + i0 * c_row + j0 * c_col;
  const T* bias = p.bias == nullptr ? nullptr : p.bias + i0 * bias_row + j0 * bias_col;
  for (std::int64_t i = 0; i < rows; ++i, c += c_row, sums += sums_row) {
    const T* from = bias == nullptr ? nullptr : bias + i * bias_row;
    if (c_col == 1 && bias == nullptr) {
      finish_row(c, sums, columns, lowest, [](vfloat sum, std::int64_t, std::int64_t) HALFGRAD_LAMBDA { return sum; });
    } else if (c_col == 1 && bias_col == 1) {
      finish_row(c, sums, columns, lowest, [=](vfloat sum, std::int64_t j, std::int64_t n) HALFGRAD_LAMBDA {
        return sum + (n == kLanes ? load(from + j) : load_n(from + j, n));
      });
    } else {
      for (std::int64_t j = 0; j < columns; ++j)
        convert(at_least(bias == nullptr ? sums[j] : sums[j] + to_float(from[j * bias_col]), lowest), c[j * c_col]);
    }
  }
}

// A block of c, computed in passes of at most kGemmBlockDepth of k: pack that much of b, prepare that much of
// a, then run one micro-kernel per tile of c.
template <class T>
class Block {
 public:
  Block(const GemmProblem<T>& problem, float* scratch)
      : p(problem),
        passes((p.k + kGemmBlockDepth - 1) / kGemmBlockDepth),
        max_depth(passes > 1 ? (p.k + passes - 1) / passes : p.k),
        sums_row(passes > 1 ? round_up(p.n, kTileColumns) : kTileColumns),
        packed_b(scratch),
        sums(packed_b + max_depth * round_up(p.n, kTileColumns)),
        prepared_a(sums + (passes > 1 ? p.m * sums_row : 0)),
        // Packing b would not pay where it is read only once, by a single row of tiles.
        columns_in_place(kIsFloat && p.b_col == 1 && p.m <= kTileRows ? p.n / kTileColumns * kTileColumns : 0) {}

  void run() {
    std::int64_t k = 0;
    do {  // at least once: with k = 0 the micro-kernels write zeros
      const std::int64_t depth = minimum(max_depth, p.k - k);
      run_pass(k, depth);
      k += depth;
    } while (k < p.k);
  }

 private:
  static constexpr bool kIsFloat = sizeof(T) == sizeof(float);

  void run_pass(std::int64_t k, std::int64_t depth) {
    const T* b = p.b + k * p.b_row;
    pack_panels(packed_b, depth * kTileColumns, b + columns_in_place * p.b_col, p.b_row, p.b_col, depth,
                p.n - columns_in_place);
    for (std::int64_t i = 0; i < p.m; i += kGemmPassRows) {
      const std::int64_t rows = minimum(kGemmPassRows, p.m - i);
      const Strided a =
          prepare_rows(prepared_a, p.a + i * p.a_row + k * p.a_col, p.a_row, p.a_col, rows, depth, p.n > kTileColumns);
      for (std::int64_t j = 0; j < p.n; j += kTileColumns) {
        Tile tile = {};
        tile.a_row = a.row;
        tile.a_depth = a.col;
        tile.b = packed_b + (j - columns_in_place) * depth;
        tile.b_depth = kTileColumns;
        if constexpr (kIsFloat) {
          if (j < columns_in_place) {
            tile.b = b + j;
            tile.b_depth = p.b_row;
          }
        }
        tile.depth = depth;
        tile.segments = kOneSegment;
        tile.segment_count = 1;
        tile.accumulate = k > 0;
        const Panels panels(rows);
        for (std::int64_t panel = 0; panel < panels.count; ++panel) {
          const std::int64_t begin = panels.begin(panel);
          tile.a = a.data + begin * a.row;
          run_and_store(tile, i + begin, j, panels.height(panel), minimum(kTileColumns, p.n - j), k + depth == p.k);
        }
      }
    }
  }

  // Sums go straight to c if they are stored there as they are. Otherwise to `sums`: all of the block's if
  // there are several passes, else those of one tile, which is finished right away.
  void run_and_store(Tile& tile, std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns, bool last) {
    if constexpr (kIsFloat) {
      if (p.c_col == 1 && p.bias == nullptr && p.lowest < 0 && columns % kLanes == 0) {
        tile.c = p.c + i * p.c_row + j;
        tile.c_row = p.c_row;
        run_tile(rows, columns, tile);
        return;
      }
    }
    tile.c = passes > 1 ? sums + i * sums_row + j : one_tile;
    tile.c_row = sums_row;
    if (last && p.c_col == 1) prefetch(p.c + i * p.c_row + j, rows, columns);
    run_tile(rows, columns, tile);
    if (last) finish_tile(p, tile.c, tile.c_row, i, j, rows, columns);
  }

  // What will be written when the sums are there can come into the cache until then.
  void prefetch(const T* c, std::int64_t rows, std::int64_t columns) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      __builtin_prefetch(c + i * p.c_row, 1);
      __builtin_prefetch(c + i * p.c_row + columns - 1, 1);
    }
  }

  const GemmProblem<T>& p;
  const std::int64_t passes, max_depth;
  const std::ptrdiff_t sums_row;
  float* const packed_b;
  float* const sums;
  float* const prepared_a;
  const std::int64_t columns_in_place;  // of b, from the left
  alignas(64) float one_tile[kTileRows * kTileColumns];
};

template <class T>
void block(const GemmProblem<T>& problem, float* scratch) {
  Block<T>(problem, scratch).run();
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
      unroll<kRows>([&](auto i) HALFGRAD_LAMBDA { sum[i][s] = fma(load(p.a + i * p.a_row + at), column, sum[i][s]); });
    });
  for (; k < p.k; k += kLanes) {
    const std::int64_t width = minimum(kLanes, p.k - k);
    const vfloat column = load_n(b + k, width);
    unroll<kRows>([&](auto i)
                      HALFGRAD_LAMBDA { sum[i][0] = fma(load_n(p.a + i * p.a_row + k, width), column, sum[i][0]); });
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
      case 1:
        dot_column<1>(p, j);
        break;
      case 2:
        dot_column<2>(p, j);
        break;
      case 3:
        dot_column<3>(p, j);
        break;
      case 4:
        dot_column<4>(p, j);
        break;
    }
}

}  // namespace

GemmKernels gemm_kernels() { return {block<float>, block<half_bits>, dots<float>, dots<half_bits>}; }

}  // namespace halfgrad::cpu::HALFGRAD_ISA
