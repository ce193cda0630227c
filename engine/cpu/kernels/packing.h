#pragma once
// Bringing operands into the form that micro-kernels read: f32, and B in panels.
//
// A panel is kTileColumns columns of B, stored row after row, so that the micro-kernel walks through memory
// from the first number to the last. The last panel is filled up with zeros to whole vectors.

#include "engine/cpu/kernels/micro_kernel.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

HALFGRAD_INLINE std::int64_t minimum(std::int64_t x, std::int64_t y) { return x < y ? x : y; }
HALFGRAD_INLINE std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Reads `count` floats or halves, `stride` apart, into contiguous floats.
template <class T>
HALFGRAD_INLINE void copy_strided(float* to, const T* from, std::ptrdiff_t stride, std::int64_t count) {
  if (stride == 1) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if (i < count) store_n(to + i, load_n(from + i, count - i), count - i);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i * stride]);
  }
}

/// The reverse, rounding to half if need be.
template <class T>
HALFGRAD_INLINE void write_strided(T* to, std::ptrdiff_t stride, const float* from, std::int64_t count) {
  if (stride == 1) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if (i < count) store_n(to + i, load_n(from + i, count - i), count - i);
  } else {
    for (std::int64_t i = 0; i < count; ++i) convert(from[i], to[i * stride]);
  }
}

/// Transposes: to[j * to_row + i] = from[i * from_row + j] for `rows` x `columns` numbers of `from`. With
/// kPad the rows of `to` are filled up with zeros to whole vectors.
template <bool kPad = false, class From, class To>
void transpose_matrix(To* to, std::ptrdiff_t to_row, const From* from, std::ptrdiff_t from_row, std::int64_t rows,
                      std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; i += kLanes) {
    const std::int64_t height = minimum(kLanes, rows - i);
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      const std::int64_t width = minimum(kLanes, columns - j);
      const From* source = from + i * from_row + j;
      To* target = to + j * to_row + i;
      vfloat square[kLanes];
      if (height == kLanes && width == kLanes) {
        unroll<kLanes>([&](auto l) HALFGRAD_LAMBDA { square[l] = load(source + l * from_row); });
        transpose(square);
        unroll<kLanes>([&](auto l) HALFGRAD_LAMBDA { store(target + l * to_row, square[l]); });
      } else {
        for (int l = 0; l < kLanes; ++l) square[l] = l < height ? load_n(source + l * from_row, width) : vfloat{};
        transpose(square);
        for (int l = 0; l < width; ++l) store_n(target + l * to_row, square[l], kPad ? kLanes : height);
      }
    }
  }
}

/// Packs `depth` rows and `columns` columns of B, whose element (k, j) is at b + k*b_row + j*b_col, into
/// panels that are `panel_step` floats apart.
template <class T>
void pack_panels(float* to, std::ptrdiff_t panel_step, const T* b, std::ptrdiff_t b_row, std::ptrdiff_t b_col,
                 std::int64_t depth, std::int64_t columns) {
  if (b_col == 1) {
    constexpr std::int64_t kGroup = 4 * kTileColumns;  // several panels at a time: longer runs of b to read
    for (std::int64_t begin = 0; begin < columns; begin += kGroup) {
      const std::int64_t end = minimum(columns, begin + kGroup);
      for (std::int64_t k = 0; k < depth; ++k) {
        const T* from = b + k * b_row;
        float* row = to + begin / kTileColumns * panel_step + k * kTileColumns;
        std::int64_t j = begin;
        for (; j + kTileColumns <= end; j += kTileColumns, row += panel_step)
          unroll<kTileVectors>([&](auto v) HALFGRAD_LAMBDA { store(row + v * kLanes, load(from + j + v * kLanes)); });
        for (; j < end; j += kLanes, row += kLanes) store(row, load_n(from + j, minimum(kLanes, end - j)));
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < columns; j += kTileColumns, to += panel_step) {
    const std::int64_t width = minimum(kTileColumns, columns - j);
    const T* from = b + j * b_col;
    if (b_row == 1) {
      transpose_matrix<true>(to, kTileColumns, from, b_col, width, depth);
    } else {
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t l = 0; l < round_up(width, kLanes); ++l)
          to[k * kTileColumns + l] = l < width ? to_float(from[k * b_row + l * b_col]) : 0;
    }
  }
}

/// A matrix of floats.
struct Strided {
  const float* data;
  std::ptrdiff_t row, col;
};

/// A as the micro-kernel may read it. Unlike B it is not packed, because one broadcast number is read at a
/// time; where it is f32 already it usually stays where it is, else it is copied to `to`, which has room for
/// (rows + 32) x (depth + 32) floats. `reused`: the rows will be read more than a few times.
template <class T>
Strided prepare_rows(float* to, const T* a, std::ptrdiff_t a_row, std::ptrdiff_t a_col, std::int64_t rows,
                     std::int64_t depth, bool reused) {
  if constexpr (sizeof(T) == sizeof(float)) {
    // Numbers whose addresses differ by a multiple of 2 KiB compete for the same few places in the L1 cache.
    constexpr std::ptrdiff_t kBadStride = 2048 / sizeof(float);
    const bool contiguous = a_col == 1 || a_row == 1;
    const std::ptrdiff_t stride = a_col == 1 ? a_row : a_col;
    if (!reused || (contiguous && (stride % kBadStride != 0 || rows <= 8))) return {a, a_row, a_col};
  }
  if (a_row == 1 && a_col != 1) {
    const std::ptrdiff_t column = round_up(rows, 16);
    for (std::int64_t k = 0; k < depth; ++k) copy_strided(to + k * column, a + k * a_col, 1, rows);
    return {to, 1, column};
  }
  const std::ptrdiff_t row = round_up(depth, 16) + 16;  // 16 more, so that it is no power of two
  for (std::int64_t i = 0; i < rows; ++i) copy_strided(to + i * row, a + i * a_row, a_col, depth);
  return {to, row, 1};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
