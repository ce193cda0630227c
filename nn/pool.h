#pragma once
// Pooling as layers, see engine/ops/pool.h: x [N, C, H, W] -> [N, C, OH, OW].

#include "engine/ops/pool.h"
#include "nn/module.h"
#include "nn/repr.h"

namespace halfgrad::nn {

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pair kernel, const PoolOptions& options = {}) : kernel(kernel), options(options) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel, options); }
  std::string extra_repr() const override {
    return text_of(kernel) + unless("stride", options.stride, 0) + unless("padding", options.padding, 0) +
           unless("dilation", options.dilation, 1);
  }

  Pair kernel;
  PoolOptions options;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pair kernel, const PoolOptions& options = {}) : kernel(kernel), options(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel, options); }
  std::string extra_repr() const override {
    return text_of(kernel) + unless("stride", options.stride, 0) + unless("padding", options.padding, 0) +
           (options.count_include_pad ? "" : ", count_include_pad=false");
  }

  Pair kernel;
  PoolOptions options;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair output = 1) : output(output) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output); }
  std::string extra_repr() const override { return text_of(output); }

  Pair output;
};

}  // namespace halfgrad::nn
