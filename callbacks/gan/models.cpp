#include "callbacks/gan/models.h"

#include "nn/activation.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/norm.h"

namespace halfgrad {

namespace {

void check_sizes(const char* model, std::int64_t in_size, std::int64_t n_channels, std::int64_t n_features,
                 std::int64_t n_extra_layers) {
  check(in_size >= 8 && (in_size & (in_size - 1)) == 0, "{}: in_size is {}; expected a power of two from 8 on", model,
        in_size);
  check(n_channels >= 1 && n_features >= 1 && n_extra_layers >= 0,
        "{}: n_channels is {}, n_features {}, n_extra_layers {}; expected at least 1, 1 and 0", model, n_channels,
        n_features, n_extra_layers);
}

// As DCGAN: weights of deviation 0.02, around 0 and, in batchnorm, around 1.
void init_dcgan(nn::Module& layer) {
  if (auto* conv = dynamic_cast<nn::Conv2d*>(&layer)) nn::init::normal_(conv->weight, 0, 0.02);
  if (auto* conv = dynamic_cast<nn::ConvTranspose2d*>(&layer)) nn::init::normal_(conv->weight, 0, 0.02);
  if (auto* norm = dynamic_cast<nn::BatchNorm*>(&layer)) nn::init::normal_(norm->weight, 1, 0.02);
}

}  // namespace

// No convolution has a bias: batchnorm has one, or after the last layer it is not missed.

nn::Sequential basic_generator(std::int64_t in_size, std::int64_t n_channels, const BasicGeneratorOptions& options) {
  check_sizes("basic_generator", in_size, n_channels, options.n_features, options.n_extra_layers);
  check(options.noise_sz >= 1, "basic_generator: noise_sz is {}; expected at least 1", options.noise_sz);
  const nn::ConvTranspose2dOptions from_one{.bias = false}, same{.padding = 1, .bias = false},
      twice{.stride = 2, .padding = 1, .bias = false};
  nn::Sequential net;
  const auto add = [&](std::int64_t in, std::int64_t out, std::int64_t kernel, const auto& conv) {
    net.add(nn::ConvTranspose2d(in, out, kernel, conv)).add(nn::BatchNorm2d(out)).add(nn::ReLU());
  };
  std::int64_t channels = options.n_features * in_size / 8;
  add(options.noise_sz, channels, 4, from_one);
  for (std::int64_t size = 4; size < in_size / 2; size *= 2, channels /= 2) add(channels, channels / 2, 4, twice);
  for (std::int64_t i = 0; i < options.n_extra_layers; ++i) add(channels, channels, 3, same);
  net.add(nn::ConvTranspose2d(channels, n_channels, 4, twice)).add(nn::Tanh());
  net.apply(init_dcgan);
  return net;
}

nn::Sequential basic_critic(std::int64_t in_size, std::int64_t n_channels, const BasicCriticOptions& options) {
  check_sizes("basic_critic", in_size, n_channels, options.n_features, options.n_extra_layers);
  const nn::Conv2dOptions to_one{.bias = false}, same{.padding = 1, .bias = false},
      half_size{.stride = 2, .padding = 1, .bias = false};
  nn::Sequential net;
  const auto add = [&](std::int64_t in, std::int64_t out, std::int64_t kernel, const auto& conv) {
    net.add(nn::Conv2d(in, out, kernel, conv)).add(nn::BatchNorm2d(out)).add(nn::LeakyReLU(0.2));
  };
  std::int64_t channels = options.n_features;
  net.add(nn::Conv2d(n_channels, channels, 4, half_size)).add(nn::LeakyReLU(0.2));
  for (std::int64_t i = 0; i < options.n_extra_layers; ++i) add(channels, channels, 3, same);
  for (std::int64_t size = in_size / 2; size > 4; size /= 2, channels *= 2) add(channels, 2 * channels, 4, half_size);
  net.add(nn::Conv2d(channels, 1, 4, to_one)).add(nn::Flatten(0));
  net.apply(init_dcgan);
  return net;
}

}  // namespace halfgrad
