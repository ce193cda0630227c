// The plan of a convolution's weight gradient: dw[o][c][r][s] sums, over all images and output pixels, the
// product of the output's gradient with the input that tap (r, s) sees there. As a matrix product it is low
// and wide but very deep.
//
// So the batch is cut into a few parts, by shape alone. Each part has its own f32 sums, which are added up in
// the order of the parts and rounded once. Every number of threads gives the same bits.

#include "engine/cpu/conv.h"
#include "engine/cpu/conv_plan.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad::cpu {
namespace {

constexpr std::int64_t kTasks = 8;                  // wanted
constexpr std::int64_t kPartialSums = 1024 * 1024;  // floats, at most, unless one part needs more
// The largest buffers of a task, in floats: its staged input and its packed gradient.
constexpr std::int64_t kStaged = 256 * 1024;
constexpr std::int64_t kPacked = 128 * 1024;

template <class T>
class Plan {
 public:
  Plan(const View& dw_view, const View& x_view, const View& dy_view, const Conv2dGeometry& geometry)
      : dw(dw_view),
        x(x_view),
        dy(dy_view),
        all_groups(geometry.groups),
        rows(forward_axis(dy.height, dw.shape[2], geometry, 0)),
        columns(forward_axis(dy.width, dw.shape[3], geometry, 1)) {}

  void run() const {
    const std::int64_t work = x.count * rows.count * columns.count * dw.numel();
    std::int64_t parts = std::min({x.count, kTasks, work / kConvTaskWork, kPartialSums / sums_part});
    parts = std::max<std::int64_t>(parts, 1);
    // If there are too few parts, cut the outputs too. Every such cut stages the images once more, so not too
    // finely.
    std::int64_t cuts = work < 2 * kConvTaskWork || depthwise ? 1 : std::min(divide_up(kTasks, parts), panels / 2);
    cuts = std::max<std::int64_t>(cuts, 1);

    const Scratch sums(parts * sums_part * sizeof(float));
    parallel_for(parts * cuts, 1, [&](std::int64_t task, std::int64_t) {
      const std::int64_t part = task / cuts, cut = task % cuts;
      sum_part(sums.as<float>() + part * sums_part, x.count * part / parts, x.count * (part + 1) / parts,
               panels * cut / cuts, panels * (cut + 1) / cuts);
    });
    store(sums.as<float>(), parts);
  }

 private:
  // Some output rows of some images, as the kernels read them.
  struct Data {
    std::int64_t image, images, row, row_count;
    const float* source = nullptr;
    std::ptrdiff_t source_image = 0, source_row = 0, source_column = 0;
    float* packed = nullptr;
  };

  // The sums of the images [begin, end), for the panels [first_panel, end_panel) of outputs of each group.
  void sum_part(float* sums, std::int64_t begin, std::int64_t end, std::int64_t first_panel,
                std::int64_t end_panel) const {
    const std::int64_t packed_row = columns.count * (end_panel - first_panel) * kernel.tile_columns;
    const Portion portion = choose_portion(rows, source_in_place ? 0 : staged_columns * x.channels, kStaged, packed_row,
                                           kPacked, std::max<std::int64_t>(end - begin, 1));
    const std::int64_t staged_image = staged_image_size(rows.extent(portion.rows) * staged_columns * x.channels);
    const Scratch staged(source_in_place ? 0 : portion.images * staged_image * sizeof(float));
    const Scratch packed(portion.images * portion.rows * packed_row * sizeof(float));

    bool first = true;
    std::int64_t image = begin;
    do {  // at least once: a part without images has sums of zero
      std::int64_t row = 0;
      do {
        Data data = {image, std::min(portion.images, end - image), row, std::min(portion.rows, rows.count - row)};
        data.packed = packed.as<float>();
        locate_source(data, staged.as<float>(), staged_image);
        if (depthwise) {
          add_depthwise(data, sums, first);
        } else {
          add(data, sums, first_panel, end_panel, first);
        }
        first = false;
        row += data.row_count;
      } while (row < rows.count);
      image += portion.images;
    } while (image < end);
  }

  void locate_source(Data& data, float* staged, std::ptrdiff_t staged_image) const {
    data.source_row = rows.step * source_row;
    data.source_column = columns.step * source_column;
    data.source = staged;
    data.source_image = staged_image;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (source_in_place) {
        data.source_image = x.image;
        data.source =
            x.data + data.image * x.image + (data.row * rows.step + rows.first()) * x.row + columns.first() * x.column;
        return;
      }
    }
    stage_images(typed, staged, staged_image, x, data.image, data.images, rows, data.row, data.row_count, columns);
  }

  void add(const Data& data, float* sums, std::int64_t first_panel, std::int64_t end_panel, bool first) const {
    const std::int64_t first_output = first_panel * kernel.tile_columns;
    std::vector<std::ptrdiff_t> segments;
    for (std::int64_t n = 0; n < data.images; ++n)
      for (std::int64_t i = 0; i < data.row_count; ++i) segments.push_back(n * data.source_image + i * data.source_row);

    WeightGradientArgs args = {};
    args.source_column = data.source_column;
    args.segments = segments.data();
    args.segment_count = static_cast<std::int64_t>(segments.size());
    args.depth = columns.count;
    args.blocks = blocks.offsets.data();
    args.block_count = static_cast<std::int64_t>(blocks.offsets.size());
    args.block_rows = blocks.depth;
    args.outputs = std::min(outputs, end_panel * kernel.tile_columns) - first_output;
    args.sums_row = sums_row;
    args.accumulate = !first;
    for (std::int64_t group = 0; group < groups; ++group) {
      args.source = data.source + group * inputs;
      args.sums = sums + group * sums_group + first_output;
      locate_gradient(args, data, group * outputs + first_output);
      kernel.weight_gradient(args);
    }
  }

  // The gradient is packed, unless it is read only a few times and f32, channels-last and without gaps.
  void locate_gradient(WeightGradientArgs& args, const Data& data, std::int64_t first_output) const {
    const bool rows_joined = dy.row == columns.count * dy.column;
    if constexpr (sizeof(T) == sizeof(float)) {
      const bool images_joined = data.images == 1 || (dy.image == rows.count * dy.row && data.row_count == rows.count);
      const bool few_times = args.block_count * args.block_rows <= 64;
      if (few_times && dy.channel == 1 && outputs % kernel.lanes == 0 && rows_joined && images_joined) {
        args.gradient = dy.data + data.image * dy.image + data.row * dy.row + first_output;
        args.gradient_pixel = dy.column;
        args.gradient_panel = kernel.tile_columns;
        return;
      }
    }
    args.gradient = data.packed;
    args.gradient_pixel = kernel.tile_columns;
    args.gradient_panel = data.images * data.row_count * columns.count * kernel.tile_columns;
    PackGradientArgs<T> pack = {};
    pack.channel = dy.channel;
    pack.pixel = dy.column;
    pack.channels = args.outputs;
    pack.panel_step = args.gradient_panel;
    // Rows that follow each other without a gap are one long run of pixels.
    const std::int64_t runs = rows_joined ? 1 : data.row_count;
    pack.pixels = rows_joined ? data.row_count * columns.count : columns.count;
    for (std::int64_t n = 0; n < data.images; ++n)
      for (std::int64_t i = 0; i < runs; ++i) {
        pack.dy = dy.data + (data.image + n) * dy.image + (data.row + i) * dy.row + first_output * dy.channel;
        pack.panels = data.packed + (n * data.row_count * columns.count + i * pack.pixels) * kernel.tile_columns;
        typed.pack_gradient(pack);
      }
  }

  void add_depthwise(const Data& data, float* sums, bool first) const {
    if (first) std::fill_n(sums, sums_part, 0.0F);
    DepthwiseArgs args = {};
    args.source_row = data.source_row;
    args.source_column = data.source_column;
    args.taps = blocks.offsets.data();
    args.tap_count = static_cast<std::int64_t>(blocks.offsets.size());
    args.channels = x.channels;
    args.rows = data.row_count;
    args.columns = columns.count;
    args.w = sums;
    args.y = data.packed;
    args.y_column = x.channels;
    args.y_row = columns.count * x.channels;
    const Axis dy_rows = {rows.count, 1, {0}, {0}}, dy_columns = {columns.count, 1, {0}, {0}};  // staged as it is
    for (std::int64_t n = 0; n < data.images; ++n) {
      stage_images(typed, data.packed, 0, dy, data.image + n, 1, dy_rows, data.row, data.row_count, dy_columns);
      args.source = data.source + n * data.source_image;
      kernel.depthwise_weight_gradient(args);
    }
  }

  // Adds up the parts and writes dw.
  void store(float* sums, std::int64_t parts) const {
    std::vector<std::ptrdiff_t> taps;
    for (std::int64_t r : rows.taps)
      for (std::int64_t c : columns.taps) taps.push_back(r * dw.strides[2] + c * dw.strides[3]);
    const std::int64_t sums_count = static_cast<std::int64_t>(taps.size()) * inputs * kernel.tile_columns;
    parallel_for(groups * panels, divide_up(20'000, sums_count + 1), [&](std::int64_t begin, std::int64_t end) {
      const Scratch scratch(sums_count * sizeof(float));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t group = i / panels, output = i % panels * kernel.tile_columns;
        StoreWeightsArgs<T> args = {};
        args.sums = sums + group * sums_group + output;
        args.sums_part = sums_part;
        args.sums_row = sums_row;
        args.parts = parts;
        args.dw = dw.as<T>() + (group * outputs + output) * dw.strides[0];
        args.input = dw.strides[1];
        args.output = dw.strides[0];
        args.taps = taps.data();
        args.tap_count = static_cast<std::int64_t>(taps.size());
        args.inputs = inputs;
        args.outputs = std::min(kernel.tile_columns, outputs - output);
        args.scratch = scratch.as<float>();
        typed.store_weights(args);
      }
    });
  }

  const View& dw;
  const Images<const T> x, dy;
  const std::int64_t all_groups;
  const Axis rows, columns;
  const ConvKernels& kernel = kernels().conv;
  const ConvTypedKernels<T>& typed = typed_kernels(kernel, T());

  // Depthwise sums are [tap][channel], as if there were one group with one input and all channels as outputs.
  const bool depthwise = all_groups > 1 && all_groups == x.channels&& all_groups == dy.channels;
  const std::int64_t groups = depthwise ? 1 : all_groups;
  const std::int64_t inputs = x.channels / all_groups, outputs = dy.channels / groups;
  const std::int64_t panels = divide_up(outputs, kernel.tile_columns);  // of a group

  const bool source_in_place = readable_in_place(x, rows, columns);
  const std::int64_t staged_columns = columns.extent(columns.count);
  const std::ptrdiff_t source_column = source_in_place ? x.column : x.channels;
  const std::ptrdiff_t source_row = source_in_place ? x.row : staged_columns * x.channels;

  // One run of inputs per filter row, or tap, and output pixel: those are the rows of a group's sums.
  const Segments blocks{rows, columns, source_row, source_column, x.channels, inputs};
  const std::ptrdiff_t sums_row = depthwise ? outputs : panels * kernel.tile_columns;
  const std::ptrdiff_t sums_group =
      static_cast<std::int64_t>(rows.taps.size() * columns.taps.size()) * inputs * sums_row;
  const std::ptrdiff_t sums_part = groups * sums_group;
};

}  // namespace

void conv2d_backward_weight(const View& dw, const View& x, const View& dy, const Conv2dGeometry& geometry) {
  if (dw.numel() == 0) return;
  switch (dw.dtype) {
    case f16:
      return Plan<std::uint16_t>(dw, x, dy, geometry).run();
    case f64:
      return conv2d_backward_weight_f64(dw, x, dy, geometry);
    default:
      return Plan<float>(dw, x, dy, geometry).run();
  }
}

}  // namespace halfgrad::cpu
