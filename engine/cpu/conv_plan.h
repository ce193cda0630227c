#pragma once
// What the plans of the three convolutions share.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/backend.h"
#include "engine/cpu/kernels.h"

namespace halfgrad::cpu {

inline std::int64_t divide_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }

/// One spatial dimension. Output position i is made from the input positions i * step + offsets[t]; that of
/// offsets[t] is multiplied with the weights at filter position taps[t].
struct Axis {
  std::int64_t count = 0;  ///< output positions
  std::int64_t step = 1;
  std::vector<std::int64_t> offsets;  ///< ascending
  std::vector<std::int64_t> taps;

  std::int64_t first() const { return offsets.empty() ? 0 : offsets.front(); }
  /// How many input positions `positions` neighbouring outputs reach over.
  std::int64_t extent(std::int64_t positions) const {
    return offsets.empty() || positions == 0 ? 0 : (positions - 1) * step + offsets.back() - offsets.front() + 1;
  }
  /// Whether the inputs of an output position are neighbours.
  bool dense() const { return !offsets.empty() && extent(1) == static_cast<std::int64_t>(offsets.size()); }
};

/// The dimension `d` (0: rows, 1: columns) of a convolution from x to y.
inline Axis forward_axis(std::int64_t outputs, std::int64_t filter, const Conv2dGeometry& geometry, int d) {
  Axis axis;
  axis.count = outputs;
  axis.step = geometry.stride[d];
  for (std::int64_t tap = 0; tap < filter; ++tap) {
    axis.offsets.push_back(tap * geometry.dilation[d] - geometry.padding[d]);
    axis.taps.push_back(tap);
  }
  return axis;
}

/// A batch of images in memory, [N, C, H, W] with any strides.
template <class T>
struct Images {
  T* data;
  std::ptrdiff_t image, channel, row, column;  // strides
  std::int64_t count, channels, height, width;

  explicit Images(const View& v)
      : data(v.as<T>()),
        image(v.strides[0]),
        channel(v.strides[1]),
        row(v.strides[2]),
        column(v.strides[3]),
        count(v.shape[0]),
        channels(v.shape[1]),
        height(v.shape[2]),
        width(v.shape[3]) {}
};

/// Where the inputs of one output pixel lie, in channels-last memory: runs of `depth` numbers that begin at
/// `offsets`, in the order of the rows of the packed weights.
struct Segments {
  std::vector<std::ptrdiff_t> offsets;
  std::int64_t depth = 0;

  /// A row of the filter is one run if nothing lies between its taps, else every tap is a run of its own.
  Segments(const Axis& rows, const Axis& columns, std::ptrdiff_t row, std::ptrdiff_t column, std::int64_t channels,
           std::int64_t group_inputs) {
    const bool whole_rows = columns.dense() && column == channels && channels == group_inputs;
    depth = whole_rows ? static_cast<std::int64_t>(columns.offsets.size()) * channels : group_inputs;
    for (std::int64_t r : rows.offsets)
      for (std::int64_t c : columns.offsets) {
        offsets.push_back((r - rows.first()) * row + (c - columns.first()) * column);
        if (whole_rows) break;
      }
  }
};

/// Whether the images need no staging: they are f32 and channels-last, and no output sees beyond their
/// borders.
template <class T>
bool readable_in_place(const Images<const T>& x, const Axis& rows, const Axis& columns) {
  return sizeof(T) == sizeof(float) && x.channel == 1 && rows.first() >= 0 && columns.first() >= 0 &&
         rows.first() + rows.extent(rows.count) <= x.height &&
         columns.first() + columns.extent(columns.count) <= x.width;
}

/// Work for one thread at a time, in multiply-adds: enough to be worth handing over.
inline constexpr std::int64_t kConvTaskWork = std::int64_t{1} << 19;

/// How much of a batch is worked on at a time: so many output rows of so many images.
struct Portion {
  std::int64_t images = 1, rows = 1;
};

/// The largest portion of which the staged input, with rows of `staged_row` floats, and the results, with
/// rows of `result_row` floats, keep within their limits. Several images only if they fit whole, and at most
/// `max_images`.
inline Portion choose_portion(const Axis& rows, std::int64_t staged_row, std::int64_t staged_limit,
                              std::int64_t result_row, std::int64_t result_limit, std::int64_t max_images) {
  const auto fits = [&](std::int64_t images, std::int64_t count) {
    return images * rows.extent(count) * staged_row <= staged_limit && images * count * result_row <= result_limit;
  };
  Portion portion{1, std::max<std::int64_t>(rows.count, 1)};
  while (portion.rows > 1 && !fits(1, portion.rows)) portion.rows = divide_up(portion.rows, 2);
  if (portion.rows == rows.count)
    while (portion.images < max_images && fits(portion.images + 1, portion.rows)) ++portion.images;
  return portion;
}

/// Floats from one staged image to the next. Not a multiple of 2 KiB, because numbers that far apart compete
/// for the same few places in the L1 cache.
inline std::int64_t staged_image_size(std::int64_t floats) { return (floats + 15) / 16 * 16 + 16; }

/// Stages rows and columns of several images, as the outputs from (first_image, first_row) on need them.
template <class T>
void stage_images(const ConvTypedKernels<T>& kernel, float* staged, std::int64_t staged_image, const Images<const T>& x,
                  std::int64_t first_image, std::int64_t images, const Axis& rows, std::int64_t first_row,
                  std::int64_t row_count, const Axis& columns) {
  StageArgs<T> args = {};
  args.channel = x.channel;
  args.row = x.row;
  args.column = x.column;
  args.channels = x.channels;
  args.height = x.height;
  args.width = x.width;
  args.first_row = first_row * rows.step + rows.first();
  args.first_column = columns.first();
  args.rows = rows.extent(row_count);
  args.columns = columns.extent(columns.count);
  for (std::int64_t n = 0; n < images; ++n) {
    args.image = x.data + (first_image + n) * x.image;
    args.staged = staged + n * staged_image;
    kernel.stage(args);
  }
}

inline const ConvTypedKernels<float>& typed_kernels(const ConvKernels& kernels, float) { return kernels.of_f32; }
inline const ConvTypedKernels<std::uint16_t>& typed_kernels(const ConvKernels& kernels, std::uint16_t) {
  return kernels.of_f16;
}

}  // namespace halfgrad::cpu
