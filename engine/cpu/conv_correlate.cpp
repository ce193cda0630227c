// The plan of a correlation. Tasks are bands of output rows, or several images if they are small, chosen by
// shape alone. Every output is computed by one task, so every number of threads gives the same bits.

#include "engine/cpu/conv_correlate.h"

#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad::cpu {
namespace {

// The largest buffers of a task, in floats: its staged input and its sums. Together with a panel of weights
// they are to stay in the L2 cache, and small sums in the L1 cache.
constexpr std::int64_t kStaged = 256 * 1024;
constexpr std::int64_t kSums = 16 * 1024;
// Weights beyond the L2 cache should be read rarely: a task then has more pixels and fewer outputs.
constexpr std::int64_t kLargeWeights = 256 * 1024;
constexpr std::int64_t kSumsForLargeWeights = 128 * 1024;

// Without neighbours it does not matter where a row ends: small images become one long row, which fills the
// tiles.
template <class T>
void join_rows(Correlation<T>& p) {
  constexpr std::int64_t kLongRow = 14;
  const auto pointwise = [](const Axis& axis, std::int64_t size) {
    return axis.step == 1 && axis.offsets == std::vector<std::int64_t>{0} && axis.count == size;
  };
  if (p.columns.count >= kLongRow || !pointwise(p.rows, p.source.height) || !pointwise(p.columns, p.source.width))
    return;
  if (p.source.row != p.source.width * p.source.column || p.target.row != p.source.width * p.target.column) return;
  p.columns.count *= p.rows.count;
  p.rows.count = 1;
  p.source.width = p.columns.count;
  p.source.height = 1;
}

template <class T>
class Plan {
 public:
  explicit Plan(const Correlation<T>& problem) : p(problem) {}

  void run() {
    const Scratch weights((depthwise ? taps.size() * channels : panel_count() * panel_size) * sizeof(float));
    packed = weights.as<float>();
    if (depthwise) {
      pack_depthwise_weights();
    } else {
      pack_weights();
    }
    const std::int64_t tasks = divide_up(p.source.count, portion.images) * bands * cuts;
    const std::int64_t work = work_per_image * portion.images / (bands * cuts) + 1;
    parallel_for(tasks, divide_up(kConvTaskWork, work), [&](std::int64_t begin, std::int64_t end) {
      const Scratch staged(source_in_place ? 0 : portion.images * staged_image * sizeof(float));
      const Scratch sums(target_in_place ? 0 : portion.images * sums_image * sizeof(float));
      for (std::int64_t task = begin; task < end; ++task) run_task(task, staged.as<float>(), sums.as<float>());
    });
  }

 private:
  std::int64_t panel_count() const { return p.groups * panels; }

  std::vector<std::ptrdiff_t> weight_offsets() const {
    std::vector<std::ptrdiff_t> offsets;
    for (std::int64_t r : p.rows.taps)
      for (std::int64_t c : p.columns.taps) offsets.push_back(r * p.w_row + c * p.w_column);
    return offsets;
  }

  // The weights of one panel after the other, group after group.
  void pack_weights() const {
    const std::int64_t grain = std::max<std::int64_t>(1, 100'000 / std::max<std::int64_t>(panel_size, 1));
    parallel_for(panel_count(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t output = i % panels * kernel.tile_columns;
        PackWeightsArgs<T> args = {};
        args.w = p.w + i / panels * p.w_group + output * p.w_output;
        args.input = p.w_input;
        args.output = p.w_output;
        args.taps = taps.data();
        args.tap_count = static_cast<std::int64_t>(taps.size());
        args.inputs = group_inputs;
        args.outputs = std::min(kernel.tile_columns, group_outputs - output);
        args.panel = packed + i * panel_size;
        typed.pack_weights(args);
      }
    });
  }

  // [tap][channel]; the weights of one tap are staged like a pixel.
  void pack_depthwise_weights() const {
    StageArgs<T> args = {};
    args.channel = p.w_group;
    args.channels = channels;
    args.height = args.width = args.rows = args.columns = 1;
    for (std::size_t t = 0; t < taps.size(); ++t) {
      args.image = p.w + taps[t];
      args.staged = packed + static_cast<std::int64_t>(t) * channels;
      typed.stage(args);
    }
  }

  void run_task(std::int64_t task, float* staged, float* sums) const {
    // Tasks that share weights follow each other.
    const std::int64_t bands_of_all = divide_up(p.source.count, portion.images) * bands;
    const std::int64_t cut = task / bands_of_all, image = task % bands_of_all / bands * portion.images;
    const std::int64_t row = task % bands * portion.rows;
    const std::int64_t first_panel = panels * cut / cuts, end_panel = panels * (cut + 1) / cuts;
    const std::int64_t first_output = first_panel * kernel.tile_columns;
    T* target = p.target.data + image * p.target.image + row * p.target.row + first_output * p.target.channel;

    CorrelateArgs args = {};
    args.images = std::min(portion.images, p.source.count - image);
    args.rows = std::min(portion.rows, p.rows.count - row);
    args.columns = p.columns.count;
    args.source = staged;
    args.source_image = staged_image;
    args.source_row = p.rows.step * source_row;
    args.source_column = p.columns.step * source_column;
    args.segments = segments.offsets.data();
    args.segment_count = static_cast<std::int64_t>(segments.offsets.size());
    args.depth = segments.depth;
    args.weights = packed + first_panel * panel_size;
    args.groups = p.groups;
    args.group_inputs = group_inputs;
    args.group_outputs = std::min(group_outputs, end_panel * kernel.tile_columns) - first_output;
    args.sums = sums;
    args.sums_image = sums_image;
    args.sums_row = p.columns.count * sums_column;
    args.sums_column = sums_column;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (source_in_place) {
        args.source = p.source.data + image * p.source.image + (row * p.rows.step + p.rows.first()) * p.source.row +
                      p.columns.first() * p.source.column;
        args.source_image = p.source.image;
      }
      if (target_in_place) {
        args.sums = target;
        args.sums_image = p.target.image;
        args.sums_row = p.target.row;
        args.sums_column = p.target.column;
      }
    }
    if (!source_in_place)
      stage_images(typed, staged, staged_image, p.source, image, args.images, p.rows, row, args.rows, p.columns);
    if (depthwise) {
      correlate_depthwise(args);
    } else {
      kernel.correlate(args);
    }
    if (!target_in_place) store(args, target, first_output);
  }

  void correlate_depthwise(const CorrelateArgs& all) const {
    DepthwiseArgs args = {};
    args.source_row = all.source_row;
    args.source_column = all.source_column;
    args.taps = all.segments;
    args.tap_count = all.segment_count;
    args.channels = channels;
    args.rows = all.rows;
    args.columns = all.columns;
    args.w = packed;
    args.y_row = all.sums_row;
    args.y_column = all.sums_column;
    for (std::int64_t n = 0; n < all.images; ++n) {
      args.source = all.source + n * all.source_image;
      args.y = all.sums + n * all.sums_image;
      kernel.depthwise(args);
    }
  }

  void store(const CorrelateArgs& sums, T* target, std::int64_t first_output) const {
    StoreArgs<T> args = {};
    args.sums_row = sums.sums_row;
    args.sums_column = sums.sums_column;
    args.channel = p.target.channel;
    args.row = p.target.row;
    args.column = p.target.column;
    args.channels = p.groups * sums.group_outputs;
    args.rows = sums.rows;
    args.columns = sums.columns;
    args.bias = p.bias == nullptr ? nullptr : p.bias + first_output;
    args.lowest = p.lowest;
    for (std::int64_t n = 0; n < sums.images; ++n) {
      args.sums = sums.sums + n * sums.sums_image;
      args.y = target + n * p.target.image;
      typed.store(args);
    }
  }

  // How many images a task may have: enough for some work, but not so many that only few tasks are left.
  Portion choose() const {
    const std::int64_t fair = p.source.count * cuts / 8;
    const std::int64_t images = std::max(divide_up(kConvTaskWork, work_per_image / cuts + 1), fair);
    Portion result = choose_portion(p.rows, source_in_place ? 0 : staged_columns * channels, kStaged,
                                    target_in_place ? 0 : p.columns.count * sums_column,
                                    large_weights ? kSumsForLargeWeights : kSums, std::min(images, p.source.count));
    result.images = divide_up(p.source.count, divide_up(p.source.count, result.images));  // equal portions
    return result;
  }

  const Correlation<T>& p;
  const ConvKernels& kernel = kernels().conv;
  const ConvTypedKernels<T>& typed = typed_kernels(kernel, T());
  const std::int64_t channels = p.source.channels;
  const std::int64_t group_inputs = channels / p.groups, group_outputs = p.target.channels / p.groups;
  const bool depthwise = p.groups > 1 && group_inputs == 1 && group_outputs == 1;
  const std::vector<std::ptrdiff_t> taps = weight_offsets();

  // The source of a task, staged or in place.
  // (Short rows are worked on along the images, which in place might be a multiple of 2 KiB apart.)
  const bool source_in_place = p.columns.count >= 7 && readable_in_place(p.source, p.rows, p.columns);
  const std::int64_t staged_columns = p.columns.extent(p.columns.count);
  const std::ptrdiff_t source_column = source_in_place ? p.source.column : channels;
  const std::ptrdiff_t source_row = source_in_place ? p.source.row : staged_columns * channels;
  const Segments segments{p.rows, p.columns, source_row, source_column, channels, group_inputs};

  // The weights.
  const std::int64_t panels = divide_up(group_outputs, kernel.tile_columns);  // of a group
  const std::int64_t panel_size = static_cast<std::int64_t>(taps.size()) * group_inputs * kernel.tile_columns;
  const bool large_weights = p.groups == 1 && panels * panel_size > kLargeWeights;
  const std::int64_t cuts = large_weights ? std::clamp<std::int64_t>(panels / 2, 1, 4) : 1;  // of the panels
  float* packed = nullptr;

  // Sums may go straight to the target if that is how they come out of the micro-kernel. Otherwise to a
  // buffer, which has room for the whole panel that the last group writes.
  const bool target_in_place = sizeof(T) == sizeof(float) && p.target.channel == 1 && p.bias == nullptr &&
                               p.lowest < 0 && (depthwise || group_outputs % kernel.lanes == 0);
  const std::int64_t sums_column = (p.groups - 1) * group_outputs + divide_up(panels, cuts) * kernel.tile_columns;

  // The tasks: portions of the batch, which are bands of an image or whole images, times cuts of the outputs.
  const std::int64_t work_per_image =
      p.rows.count * p.columns.count * p.target.channels * static_cast<std::int64_t>(taps.size()) * group_inputs + 1;
  const Portion portion = choose();
  const std::int64_t bands = divide_up(p.rows.count, portion.rows);
  const std::int64_t staged_image = staged_image_size(p.rows.extent(portion.rows) * staged_columns * channels);
  const std::int64_t sums_image = staged_image_size(portion.rows * p.columns.count * sums_column);
};

}  // namespace

template <class T>
void correlate(Correlation<T> problem) {
  join_rows(problem);
  Plan<T>(problem).run();
}

template void correlate(Correlation<float>);
template void correlate(Correlation<std::uint16_t>);

}  // namespace halfgrad::cpu
