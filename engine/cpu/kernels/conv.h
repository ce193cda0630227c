#pragma once
// The pieces of a 2-d convolution. All arithmetic is f32; T is the type in memory, float or std::uint16_t for
// the bits of halves.
//
// The input is copied ("staged") into a small f32 buffer with channels last and zeros where the padding is.
// There the inputs of neighbouring output pixels are a constant stride apart, and those of one output pixel
// lie in long runs, so the micro-kernel of the matrix product can read them in place: it is never told that
// this is a convolution.

#include <cstddef>
#include <cstdint>

namespace halfgrad::cpu {

/// Copies a part of one image to staged[rows][columns][channels].
template <class T>
struct StageArgs {
  const T* image;
  std::ptrdiff_t channel, row, column;  // strides
  std::int64_t channels, height, width;
  std::int64_t first_row, first_column;  // where the part begins; what lies outside the image is zero
  std::int64_t rows, columns;            // size of the part
  float* staged;
};

/// Packs the weights of one group for one panel of output channels: for tap t, input i and output o they lie
/// at w + taps[t] + i * input + o * output. The panel is described in packing.h; its rows are the inputs of
/// tap 0, then those of tap 1 and so on.
template <class T>
struct PackWeightsArgs {
  const T* w;
  std::ptrdiff_t input, output;  // strides
  const std::ptrdiff_t* taps;
  std::int64_t tap_count, inputs, outputs;
  float* panel;
};

/// sums[image][row][column][o] = sum over all taps and inputs of source * weight. For the output pixel (0, 0)
/// of image 0 the inputs begin at source + segments[s], `depth` numbers each. Groups of channels follow each
/// other, both in source and in sums; so do their packed weights.
struct CorrelateArgs {
  const float* source;
  std::ptrdiff_t source_image, source_row,
      source_column;  // strides from one output pixel's inputs to the next's
  const std::ptrdiff_t* segments;
  std::int64_t segment_count, depth;
  const float* weights;
  std::int64_t groups, group_inputs, group_outputs;
  std::int64_t images, rows, columns;
  float* sums;
  std::ptrdiff_t sums_image, sums_row, sums_column;
};

/// Writes y[c][i][j] = sums[i][j][c] + bias[c], or `lowest` if that is more, for one image. Uses sums as its workspace.
template <class T>
struct StoreArgs {
  float* sums;
  std::ptrdiff_t sums_row, sums_column;
  T* y;
  std::ptrdiff_t channel, row, column;  // strides
  std::int64_t channels, rows, columns;
  const float* bias;  // null if there is none
  float lowest;
};

/// The shares that a row of dy has in dx: share s of pixel j, the sum over channels of dy times weight, is added to
/// sums[places[s] + j].
template <class T>
struct AddSharesArgs {
  const T* dy;
  std::ptrdiff_t channel, pixel;  // strides
  std::int64_t channels, pixels;
  const float* weights;  // [share][channel]
  std::ptrdiff_t weights_row;
  const std::ptrdiff_t* places;
  std::int64_t shares;
  float* sums;
  float* buffer;  // (channels + shares) floats for each pixel, these rounded up to tile_columns
};

/// Packs the gradient at a run of output pixels into panels of channels that are `panel_step` floats apart.
template <class T>
struct PackGradientArgs {
  const T* dy;
  std::ptrdiff_t channel, pixel;  // strides
  std::int64_t channels, pixels;
  float* panels;
  std::ptrdiff_t panel_step;
};

/// sums[block][i][o] (+)= sum over segments s and steps k of source[segments[s] + blocks[block] + k *
/// source_column + i] times the gradient at the same pixel: `depth` pixels a segment, one after the other.
struct WeightGradientArgs {
  const float* source;
  std::ptrdiff_t source_column;
  const std::ptrdiff_t* segments;
  std::int64_t segment_count, depth;
  const float* gradient;                          // at the first pixel
  std::ptrdiff_t gradient_pixel, gradient_panel;  // strides
  const std::ptrdiff_t* blocks;
  std::int64_t block_count, block_rows;
  std::int64_t outputs;
  float* sums;
  std::ptrdiff_t sums_row;
  bool accumulate;
};

/// A convolution in which channel c of the output sees only channel c of the input; one image, all
/// channels-last. The input of tap t for output pixel (0, 0) is at source + taps[t], and the weights are
/// w[t][c]. `depthwise` writes y; `depthwise_weight_gradient` reads y, the gradient, and adds to w.
struct DepthwiseArgs {
  const float* source;
  std::ptrdiff_t source_row, source_column;  // strides from one output pixel's input to the next's
  const std::ptrdiff_t* taps;
  std::int64_t tap_count, channels, rows, columns;
  float* w;
  float* y;
  std::ptrdiff_t y_row, y_column;
};

/// Adds up the partial sums of the weight gradient of one group and at most one panel of outputs, part after
/// part, and writes them to dw: the reverse of PackWeightsArgs. The sums of part 0 are used as workspace.
template <class T>
struct StoreWeightsArgs {
  float* sums;
  std::ptrdiff_t sums_part, sums_row;
  std::int64_t parts;
  T* dw;
  std::ptrdiff_t input, output;  // strides
  const std::ptrdiff_t* taps;
  std::int64_t tap_count, inputs, outputs;
  float* scratch;  // tile_columns * tap_count * inputs floats
};

template <class T>
struct ConvTypedKernels {
  void (*stage)(const StageArgs<T>&);
  void (*pack_weights)(const PackWeightsArgs<T>&);
  void (*store)(const StoreArgs<T>&);
  void (*pack_gradient)(const PackGradientArgs<T>&);
  void (*store_weights)(const StoreWeightsArgs<T>&);
  void (*add_shares)(const AddSharesArgs<T>&);
  /// Writes rows x columns sums, of which rows are `sums_row` apart, to y, rounded.
  void (*store_plane)(T* y, std::ptrdiff_t y_row, std::ptrdiff_t y_column, const float* sums, std::ptrdiff_t sums_row,
                      std::int64_t rows, std::int64_t columns);
};

struct ConvKernels {
  std::int64_t lanes;         ///< floats in a vector
  std::int64_t tile_columns;  ///< output channels in a panel of packed weights
  ConvTypedKernels<float> of_f32;
  ConvTypedKernels<std::uint16_t> of_f16;
  void (*correlate)(const CorrelateArgs&);
  void (*weight_gradient)(const WeightGradientArgs&);
  void (*depthwise)(const DepthwiseArgs&);
  void (*depthwise_weight_gradient)(const DepthwiseArgs&);
};

}  // namespace halfgrad::cpu
