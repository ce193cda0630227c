#pragma once
// A small generator and a small critic for square images, after DCGAN (Radford, Metz and Chintala, "Unsupervised
// representation learning with deep convolutional generative adversarial networks", 2015, arXiv 1511.06434), with the
// sizes of fastai's functions of the same names.

#include <cstdint>

#include "nn/container.h"

namespace halfgrad {

struct BasicGeneratorOptions {
  std::int64_t noise_sz = 100;
  std::int64_t n_features = 64;     ///< channels before the last layer; each earlier layer has twice as many
  std::int64_t n_extra_layers = 0;  ///< 3x3 layers before the last
};
/// noise [N, noise_sz, 1, 1] -> images [N, n_channels, in_size, in_size] in (-1, 1). Starts with 4x4 and doubles the size
/// with each layer: transposed convolution, batchnorm, ReLU; at last Tanh. Error unless in_size is 8, 16, 32, ...
nn::Sequential basic_generator(std::int64_t in_size, std::int64_t n_channels,
                               const BasicGeneratorOptions& options = {});

struct BasicCriticOptions {
  std::int64_t n_features = 64;     ///< channels after the first layer; each later layer has twice as many
  std::int64_t n_extra_layers = 0;  ///< 3x3 layers after the first
};
/// Images [N, n_channels, in_size, in_size] -> one number each, [N]: a logit for bce_gan_losses(), or a score for
/// wasserstein_losses(). Halves the size with each layer: convolution, batchnorm (not in the first), LeakyReLU(0.2). Error
/// unless in_size is 8, 16, 32, ...
nn::Sequential basic_critic(std::int64_t in_size, std::int64_t n_channels, const BasicCriticOptions& options = {});

}  // namespace halfgrad
