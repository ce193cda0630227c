// The input gradient of a convolution that has few input channels: of the first layer of a network, or the forward pass
// of the last one of a generator.
//
// As a correlation each pixel of dx would be a sum over the outputs times a matrix with a column for each channel, which
// leaves most lanes of the tiles empty. So it is done the other way round: the shares that a pixel of dy has in dx, one
// for each tap and channel, are a matrix product with the pixels of a row along the lanes, and each row of shares is
// added where it belongs. With a stride, neighbours in dy are not neighbours in dx; so the sums are kept in planes of
// pixels that are, one for each phase, and put in order at the end.
//
// A task is an image, so every number of threads gives the same bits.

#include <algorithm>

#include "engine/cpu/conv.h"
#include "engine/cpu/conv_plan.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad::cpu {
namespace {

// One dimension. Tap t of position i of dy belongs to position i * stride + t * dilation - padding of dx, which is
// element i + shift(t) of phase (t * dilation) % stride.
struct PhaseAxis {
  std::int64_t stride, padding, dilation, taps, outputs, inputs;

  PhaseAxis(const View& dx, const View& dy, const View& w, const Conv2dGeometry& geometry, int d)
      : stride(geometry.stride[d]),
        padding(geometry.padding[d]),
        dilation(geometry.dilation[d]),
        taps(w.shape[static_cast<std::size_t>(2 + d)]),
        outputs(dy.shape[static_cast<std::size_t>(2 + d)]),
        inputs(dx.shape[static_cast<std::size_t>(2 + d)]) {}

  std::int64_t phase(std::int64_t tap) const { return tap * dilation % stride; }
  std::int64_t shift(std::int64_t tap) const { return tap * dilation / stride; }
  /// Elements of a phase: what taps reach, and what dx has.
  std::int64_t extent() const { return std::max(outputs + shift(taps - 1), divide_up(inputs + padding, stride)); }
  /// The first position of dx in a phase, and how many there are.
  std::int64_t first(std::int64_t phase) const { return ((phase - padding) % stride + stride) % stride; }
  std::int64_t count(std::int64_t phase) const {
    return std::max<std::int64_t>(divide_up(inputs - first(phase), stride), 0);
  }
  /// The element of that first position.
  std::int64_t element(std::int64_t phase) const { return (first(phase) + padding) / stride; }
};

template <class T>
class Plan {
 public:
  Plan(const View& dx_view, const View& dy_view, const View& w_view, const Conv2dGeometry& geometry)
      : dx(dx_view),
        dy(dy_view),
        w(w_view),
        rows(dx_view, dy_view, w_view, geometry, 0),
        columns(dx_view, dy_view, w_view, geometry, 1) {}

  void run(const float* bias) const {
    const Scratch weights(static_cast<std::size_t>(shares * weights_row) * sizeof(float));
    std::vector<std::ptrdiff_t> places;
    // Taps of one row of the filter overlap in dx. They are not added right after each other: a number cannot be read
    // fast while vectors that overlap it are on their way to memory.
    for (std::int64_t s = 0; s < columns.taps; ++s)
      for (std::int64_t c = 0; c < dx.channels; ++c)
        for (std::int64_t r = 0; r < rows.taps; ++r) {
          widen(w.at(c * w.strides[1] + r * w.strides[2] + s * w.strides[3]),
                weights.as<float>() + static_cast<std::int64_t>(places.size()) * weights_row);
          places.push_back(plane(c, rows.phase(r), columns.phase(s)) + rows.shift(r) * columns.extent() +
                           columns.shift(s));
        }
    const std::int64_t work = shares * dy.channels * rows.outputs * columns.outputs + 1;
    parallel_for(dx.count, divide_up(kConvTaskWork, work), [&](std::int64_t begin, std::int64_t end) {
      const Scratch sums(static_cast<std::size_t>(plane(dx.channels, 0, 0)) * sizeof(float));
      const std::int64_t row = divide_up(columns.outputs, kernel.tile_columns) * kernel.tile_columns;
      const Scratch buffer(static_cast<std::size_t>(row * (dy.channels + shares)) * sizeof(float));
      for (std::int64_t n = begin; n < end; ++n) {
        for (std::int64_t c = 0; c < dx.channels; ++c)
          std::fill_n(sums.as<float>() + plane(c, 0, 0), plane(1, 0, 0), bias == nullptr ? 0 : bias[c]);
        AddSharesArgs<T> args = {};
        args.channel = dy.channel;
        args.pixel = dy.column;
        args.channels = dy.channels;
        args.pixels = columns.outputs;
        args.weights = weights.as<float>();
        args.weights_row = weights_row;
        args.places = places.data();
        args.shares = shares;
        args.buffer = buffer.as<float>();
        for (std::int64_t i = 0; i < rows.outputs; ++i) {
          args.dy = dy.data + n * dy.image + i * dy.row;
          args.sums = sums.as<float>() + i * columns.extent();
          typed.add_shares(args);
        }
        store(sums.as<float>(), dx.data + n * dx.image);
      }
    });
  }

 private:
  // Where the sums of a phase of a channel begin.
  std::int64_t plane(std::int64_t channel, std::int64_t row_phase, std::int64_t column_phase) const {
    return ((channel * rows.stride + row_phase) * columns.stride + column_phase) * rows.extent() * columns.extent();
  }

  // The weights of all outputs as contiguous floats: staged like a row of pixels.
  void widen(const void* from, float* to) const {
    StageArgs<T> args = {};
    args.image = static_cast<const T*>(from);
    args.column = w.strides[0];
    args.channels = args.height = args.rows = 1;
    args.width = args.columns = dy.channels;
    args.staged = to;
    typed.stage(args);
  }

  void store(const float* sums, T* image) const {
    for (std::int64_t c = 0; c < dx.channels; ++c)
      for (std::int64_t r = 0; r < rows.stride; ++r)
        for (std::int64_t s = 0; s < columns.stride; ++s)
          typed.store_plane(image + c * dx.channel + rows.first(r) * dx.row + columns.first(s) * dx.column,
                            rows.stride * dx.row, columns.stride * dx.column,
                            sums + plane(c, r, s) + rows.element(r) * columns.extent() + columns.element(s),
                            columns.extent(), rows.count(r), columns.count(s));
  }

  const Images<T> dx;
  const Images<const T> dy;
  const View& w;
  const PhaseAxis rows, columns;
  const std::int64_t shares = dx.channels * rows.taps * columns.taps;
  const std::int64_t weights_row = dy.channels + 16;  // 16 more, so that it is no power of two
  const ConvKernels& kernel = kernels().conv;
  const ConvTypedKernels<T>& typed = typed_kernels(kernel, T());
};

}  // namespace

bool has_few_inputs(const View& dx, const View& dy, const View& w, const Conv2dGeometry& geometry) {
  constexpr std::int64_t kFewChannels = 4, kLongRow = 8, kManyTaps = 4;
  return geometry.groups == 1 && dx.shape[1] <= kFewChannels && dy.shape[3] >= kLongRow &&
         w.shape[2] * w.shape[3] >= kManyTaps;
}

template <class T>
void backward_few_inputs(const View& dx, const View& dy, const View& w, const float* bias,
                         const Conv2dGeometry& geometry) {
  Plan<T>(dx, dy, w, geometry).run(bias);
}
template void backward_few_inputs<float>(const View&, const View&, const View&, const float*, const Conv2dGeometry&);
template void backward_few_inputs<std::uint16_t>(const View&, const View&, const View&, const float*,
                                                 const Conv2dGeometry&);

}  // namespace halfgrad::cpu
