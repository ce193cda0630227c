#pragma once
// The models of the examples: classifiers of 28 x 28 grey images [N, 1, 28, 28] into 10 classes.

#include "nn/nn.h"

namespace models {

using namespace halfgrad;

/// 784-256-128-10, 235146 parameters.
inline nn::Sequential mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 256), nn::ReLU(), nn::Linear(256, 128), nn::ReLU(),
                        nn::Linear(128, 10));
}

/// Two convolutions, then two linear layers: 421834 parameters.
inline nn::Sequential cnn() {
  return nn::Sequential(nn::Conv2d(1, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(32, 64, 3, {.padding = 1}), nn::BatchNorm2d(64), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(64 * 7 * 7, 128), nn::ReLU(), nn::Dropout(0.25), nn::Linear(128, 10));
}

/// A 3x3 convolution without bias, which batchnorm makes superfluous, and batchnorm.
inline nn::Sequential conv_bn(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Sequential(nn::Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false}),
                        nn::BatchNorm2d(out));
}

/// The basic block of He et al., "Deep residual learning for image recognition", 2016: relu(x + f(x)), where
/// x passes a 1x1 convolution when the shape changes.
inline nn::Sequential basic_block(std::int64_t in, std::int64_t out, std::int64_t stride) {
  nn::Sequential main(conv_bn(in, out, 3, stride), nn::ReLU(), conv_bn(out, out, 3, 1));
  if (in == out && stride == 1) return nn::Sequential(nn::Residual(std::move(main)), nn::ReLU());
  return nn::Sequential(nn::Residual(std::move(main), conv_bn(in, out, 1, stride)), nn::ReLU());
}

/// ResNet-18 for small images: a 3x3 stem with stride 1, and no pooling before the blocks. 11.2 million
/// parameters; fewer with another number of channels in the first block than the usual `width`.
inline nn::Sequential resnet18(std::int64_t width = 64) {
  nn::Sequential net(conv_bn(1, width, 3, 1), nn::ReLU());
  std::int64_t in = width;
  for (const std::int64_t out : {width, 2 * width, 4 * width, 8 * width}) {
    net.add(basic_block(in, out, out == width ? 1 : 2)).add(basic_block(out, out, 1));
    in = out;
  }
  net.add(nn::AdaptiveAvgPool2d(1)).add(nn::Flatten()).add(nn::Linear(in, 10));
  return net;
}

/// By name; Error for another than mlp, cnn and resnet.
inline nn::Sequential make(const std::string& name) {
  if (name == "mlp") return mlp();
  if (name == "cnn") return cnn();
  check(name == "resnet", "model '{}': expected mlp, cnn or resnet", name);
  return resnet18();
}

}  // namespace models
