#include "engine/cpu/kernels/conv.h"

#include "engine/cpu/kernels/packing.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

void fill_zero(float* to, std::int64_t count) {
  if (count > 0) std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(float));
}

// One row of pixels into channels-last order.
template <class T>
void stage_pixels(float* to, const T* from, std::ptrdiff_t channel, std::ptrdiff_t column, std::int64_t channels,
                  std::int64_t pixels) {
  if (channels == 1) {
    copy_strided(to, from, column, pixels);
  } else if (channel == 1 && column == channels) {
    copy_strided(to, from, 1, pixels * channels);
  } else if (column == 1) {
    transpose_matrix(to, channels, from, channel, channels, pixels);
  } else {
    for (std::int64_t j = 0; j < pixels; ++j) copy_strided(to + j * channels, from + j * column, channel, channels);
  }
}

template <class T>
void stage(const StageArgs<T>& p) {
  // The staged columns [left, right) lie inside the image.
  const std::int64_t left = minimum(p.columns, p.first_column < 0 ? -p.first_column : 0);
  const std::int64_t inside = minimum(p.columns, p.width - p.first_column);
  const std::int64_t right = inside > left ? inside : left;
  for (std::int64_t i = 0; i < p.rows; ++i) {
    float* to = p.staged + i * p.columns * p.channels;
    const std::int64_t h = p.first_row + i;
    if (h < 0 || h >= p.height || left == right) {
      fill_zero(to, p.columns * p.channels);
      continue;
    }
    fill_zero(to, left * p.channels);
    stage_pixels(to + left * p.channels, p.image + h * p.row + (p.first_column + left) * p.column, p.channel, p.column,
                 p.channels, right - left);
    fill_zero(to + right * p.channels, (p.columns - right) * p.channels);
  }
}

template <class T>
void pack_weights(const PackWeightsArgs<T>& p) {
  for (std::int64_t t = 0; t < p.tap_count; ++t)
    pack_panels(p.panel + t * p.inputs * kTileColumns, 0, p.w + p.taps[t], p.input, p.output, p.inputs, p.outputs);
}

void correlate(const CorrelateArgs& p) {
  // A tile's rows are neighbouring pixels of a row. Where rows are too short to fill a tile, they are the
  // same pixel of neighbouring images.
  constexpr std::int64_t kShortRow = 7;
  const bool along_images = p.columns < kShortRow && p.images > p.columns;
  const Panels panels(along_images ? p.images : p.columns);
  const std::int64_t outer = along_images ? p.columns : p.images;
  const std::ptrdiff_t source_outer = along_images ? p.source_column : p.source_image;
  const std::ptrdiff_t sums_outer = along_images ? p.sums_column : p.sums_image;

  Tile tile = {};
  tile.a_row = along_images ? p.source_image : p.source_column;
  tile.a_depth = 1;
  tile.b_depth = kTileColumns;
  tile.c_row = along_images ? p.sums_image : p.sums_column;
  tile.depth = p.depth;
  tile.segments = p.segments;
  tile.segment_count = p.segment_count;

  // The weights are the largest operand, so they are in the outer loops and read once.
  const std::int64_t panel_size = p.segment_count * p.depth * kTileColumns;
  tile.b = p.weights;
  for (std::int64_t group = 0; group < p.groups; ++group) {
    for (std::int64_t o = 0; o < p.group_outputs; o += kTileColumns, tile.b += panel_size) {
      const std::int64_t outputs = minimum(kTileColumns, p.group_outputs - o);
      const float* source = p.source + group * p.group_inputs;
      float* sums = p.sums + group * p.group_outputs + o;
      for (std::int64_t n = 0; n < outer; ++n)
        for (std::int64_t i = 0; i < p.rows; ++i)
          for (std::int64_t panel = 0; panel < panels.count; ++panel) {
            const std::int64_t begin = panels.begin(panel);
            tile.a = source + n * source_outer + i * p.source_row + begin * tile.a_row;
            tile.c = sums + n * sums_outer + i * p.sums_row + begin * tile.c_row;
            run_tile(panels.height(panel), outputs, tile);
          }
    }
  }
}

void add_to(float* sums, const float* more, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t width = minimum(kLanes, count - i);
    store_n(sums + i, load_n(sums + i, width) + load_n(more + i, width), width);
  }
}

// sums += bias, if there is one, but at least `lowest`
void finish(float* sums, const float* bias, float lowest, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t width = minimum(kLanes, count - i);
    vfloat sum = load_n(sums + i, width);
    if (bias != nullptr) sum += load_n(bias + i, width);
    store_n(sums + i, at_least(sum, lowest), width);
  }
}

template <class T>
void store_image(const StoreArgs<T>& p) {
  std::int64_t rows = p.rows, columns = p.columns;
  // Rows that follow each other without a gap are one long row.
  if (p.row == columns * p.column && p.sums_row == columns * p.sums_column) {
    columns *= rows;
    rows = 1;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    float* sums = p.sums + i * p.sums_row;
    T* y = p.y + i * p.row;
    if (p.bias != nullptr || p.lowest >= 0)
      for (std::int64_t j = 0; j < columns; ++j) finish(sums + j * p.sums_column, p.bias, p.lowest, p.channels);
    if (p.column == 1 && (p.channel != 1 || p.channels == 1)) {
      transpose_matrix(y, p.channel, sums, p.sums_column, columns, p.channels);
    } else if (p.channel == 1) {
      for (std::int64_t j = 0; j < columns; ++j)
        write_strided(y + j * p.column, 1, sums + j * p.sums_column, p.channels);
    } else {
      for (std::int64_t c = 0; c < p.channels; ++c)
        for (std::int64_t j = 0; j < columns; ++j)
          convert(sums[j * p.sums_column + c], y[c * p.channel + j * p.column]);
    }
  }
}

template <class T>
void pack_gradient(const PackGradientArgs<T>& p) {
  pack_panels(p.panels, p.panel_step, p.dy, p.pixel, p.channel, p.pixels, p.channels);
}

void weight_gradient(const WeightGradientArgs& p) {
  const Panels panels(p.block_rows);
  Tile tile = {};
  tile.a_row = 1;
  tile.a_depth = p.source_column;
  tile.b = p.gradient;
  tile.b_depth = p.gradient_pixel;
  tile.c_row = p.sums_row;
  tile.depth = p.depth;
  tile.segments = p.segments;
  tile.segment_count = p.segment_count;
  tile.accumulate = p.accumulate;
  for (std::int64_t o = 0; o < p.outputs; o += kTileColumns, tile.b += p.gradient_panel)
    for (std::int64_t block = 0; block < p.block_count; ++block)
      for (std::int64_t panel = 0; panel < panels.count; ++panel) {
        const std::int64_t begin = panels.begin(panel);
        tile.a = p.source + p.blocks[block] + begin;
        tile.c = p.sums + (block * p.block_rows + begin) * p.sums_row + o;
        run_tile(panels.height(panel), minimum(kTileColumns, p.outputs - o), tile);
      }
}

// Four neighbouring pixels at a time, so that a vector of weights is loaded once for all of them.
constexpr int kPixels = 4;

void depthwise(const DepthwiseArgs& p) {
  const std::ptrdiff_t step = p.source_column, y_step = p.y_column;
  for (std::int64_t c = 0; c < p.channels; c += kLanes) {
    const std::int64_t width = minimum(kLanes, p.channels - c);
    for (std::int64_t i = 0; i < p.rows; ++i) {
      const auto pixels = [&](auto count, std::int64_t j) HALFGRAD_LAMBDA {
        vfloat sum[kPixels];
        unroll<count>([&](auto l) HALFGRAD_LAMBDA { sum[l] = vfloat{}; });
        const float* source = p.source + i * p.source_row + j * step + c;
        for (std::int64_t t = 0; t < p.tap_count; ++t) {
          const vfloat w = load_n(p.w + t * p.channels + c, width);
          const float* from = source + p.taps[t];
          unroll<count>([&](auto l) HALFGRAD_LAMBDA { sum[l] = fma(load_n(from + l * step, width), w, sum[l]); });
        }
        float* y = p.y + i * p.y_row + j * y_step + c;
        unroll<count>([&](auto l) HALFGRAD_LAMBDA { store_n(y + l * y_step, sum[l], width); });
      };
      std::int64_t j = 0;
      for (; j + kPixels <= p.columns; j += kPixels) pixels(Index<kPixels>{}, j);
      for (; j < p.columns; ++j) pixels(Index<1>{}, j);
    }
  }
}

void depthwise_weight_gradient(const DepthwiseArgs& p) {
  constexpr int kSums = 4;
  for (std::int64_t c = 0; c < p.channels; c += kLanes) {
    const std::int64_t width = minimum(kLanes, p.channels - c);
    for (std::int64_t t = 0; t < p.tap_count; ++t) {
      vfloat sum[kSums];
      unroll<kSums>([&](auto l) HALFGRAD_LAMBDA { sum[l] = vfloat{}; });
      for (std::int64_t i = 0; i < p.rows; ++i) {
        const float* source = p.source + p.taps[t] + i * p.source_row + c;
        const float* dy = p.y + i * p.y_row + c;
        const auto multiply = [&](auto l, std::int64_t j) HALFGRAD_LAMBDA {
          sum[l] = fma(load_n(source + j * p.source_column, width), load_n(dy + j * p.y_column, width), sum[l]);
        };
        std::int64_t j = 0;
        for (; j + kSums <= p.columns; j += kSums) unroll<kSums>([&](auto l) HALFGRAD_LAMBDA { multiply(l, j + l); });
        for (; j < p.columns; ++j) multiply(Index<0>{}, j);
      }
      float* w = p.w + t * p.channels + c;
      store_n(w, load_n(w, width) + ((sum[0] + sum[1]) + (sum[2] + sum[3])), width);
    }
  }
}

template <class T>
void store_weights(const StoreWeightsArgs<T>& p) {
  const std::int64_t rows = p.tap_count * p.inputs;
  for (std::int64_t part = 1; part < p.parts; ++part)
    for (std::int64_t k = 0; k < rows; ++k) {
      float* total = p.sums + k * p.sums_row;
      add_to(total, total + part * p.sums_part, p.outputs);
    }
  transpose_matrix(p.scratch, rows, p.sums, p.sums_row, rows, p.outputs);
  for (std::int64_t o = 0; o < p.outputs; ++o) {
    const float* from = p.scratch + o * rows;
    T* to = p.dw + o * p.output;
    if (p.input == 1) {
      for (std::int64_t t = 0; t < p.tap_count; ++t) write_strided(to + p.taps[t], 1, from + t * p.inputs, p.inputs);
    } else {
      for (std::int64_t i = 0; i < p.inputs; ++i)
        for (std::int64_t t = 0; t < p.tap_count; ++t) convert(from[t * p.inputs + i], to[i * p.input + p.taps[t]]);
    }
  }
}

template <class T>
void add_shares(const AddSharesArgs<T>& p) {
  const std::ptrdiff_t panel_size = p.channels * kTileColumns, row = round_up(p.pixels, kTileColumns);
  float *packed = p.buffer, *shares = p.buffer + p.channels * row;
  pack_panels(packed, panel_size, p.dy, p.channel, p.pixel, p.channels, p.pixels);
  Tile tile = {};
  tile.a_row = p.weights_row;
  tile.a_depth = 1;
  tile.b_depth = kTileColumns;
  tile.c_row = row;
  tile.depth = p.channels;
  tile.segments = kOneSegment;
  tile.segment_count = 1;
  const Panels panels(p.shares);
  for (std::int64_t j = 0; j < p.pixels; j += kTileColumns)
    for (std::int64_t panel = 0; panel < panels.count; ++panel) {
      tile.a = p.weights + panels.begin(panel) * p.weights_row;
      tile.b = packed + j / kTileColumns * panel_size;
      tile.c = shares + panels.begin(panel) * row + j;
      run_tile(panels.height(panel), minimum(kTileColumns, p.pixels - j), tile);
    }
  for (std::int64_t s = 0; s < p.shares; ++s) add_to(p.sums + p.places[s], shares + s * row, p.pixels);
}

template <class T>
void store_plane(T* y, std::ptrdiff_t y_row, std::ptrdiff_t y_column, const float* sums, std::ptrdiff_t sums_row,
                 std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) write_strided(y + i * y_row, y_column, sums + i * sums_row, columns);
}

template <class T>
constexpr ConvTypedKernels<T> typed() {
  return {stage<T>, pack_weights<T>, store_image<T>, pack_gradient<T>, store_weights<T>, add_shares<T>, store_plane<T>};
}

}  // namespace

ConvKernels conv_kernels() {
  return {kLanes,    kTileColumns,    typed<float>(), typed<half_bits>(),
          correlate, weight_gradient, depthwise,      depthwise_weight_gradient};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
