#pragma once
// A convolution and its two gradients as halfgrad does them, to be timed on any device.

#include <cstdint>
#include <vector>

#include "bench/timing.h"
#include "engine/ops/conv.h"

namespace bench {

/// Square images and filters, the same number of zeros on all sides.
struct Convolution {
  std::int64_t batch, inputs, size, outputs, filter, stride = 1, padding = 1, groups = 1;

  std::int64_t output_size() const { return (size + 2 * padding - filter) / stride + 1; }
  double gflop() const {
    return 2e-9 *
           static_cast<double>(batch * outputs * output_size() * output_size() * (inputs / groups) * filter * filter);
  }
  halfgrad::Conv2dOptions options() const { return {.stride = stride, .padding = padding, .groups = groups}; }
};

/// Its images and its filters, all random.
struct ConvolutionTensors {
  halfgrad::Tensor x, y, weight;

  /// Images in channels-last memory, unless in `nchw`.
  ConvolutionTensors(const Convolution& c, halfgrad::DType dtype, halfgrad::Device device = halfgrad::Device::cpu(),
                     bool nchw = false) {
    const auto images = [&](std::int64_t channels, std::int64_t size) {
      const halfgrad::Tensor random = halfgrad::randn({c.batch, channels, size, size}, dtype, device);
      return nchw ? random : random.channels_last();
    };
    x = images(c.inputs, c.size);
    y = images(c.outputs, c.output_size());
    weight = halfgrad::randn({c.outputs, c.inputs / c.groups, c.filter, c.filter}, dtype, device);
  }

  /// Forward, input gradient and weight gradient.
  std::vector<Candidate> candidates(const halfgrad::Conv2dOptions& options) const {
    return {
        [=, x = x, weight = weight] { halfgrad::conv2d(x, weight, {}, options); },
        [=, x = x, y = y, weight = weight] { halfgrad::conv2d_input_gradient(y, weight, x.shape(), options); },
        [=, x = x, y = y, weight = weight] { halfgrad::conv2d_weight_gradient(x, y, weight.shape(), options); },
    };
  }
};

}  // namespace bench
