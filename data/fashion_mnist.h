#pragma once
// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 60000 pictures of clothes to train on and 10000 to validate
// on, 28 x 28 pixels in grey, in 10 classes.

#include <array>
#include <cstdint>
#include <string>

#include "data/loader.h"

namespace halfgrad::data {

/// The names of the classes 0 ... 9.
inline constexpr std::array<const char*, 10> fashion_mnist_classes = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};

/// Mean and standard deviation of all training pixels, black being 0 and white 1.
inline constexpr float fashion_mnist_mean = 0.2860f;
inline constexpr float fashion_mnist_std = 0.3530f;

struct FashionMnistOptions {
  std::int64_t batch_size = 128;
  std::string dir = "";  ///< folder of the four IDX files, plain or .gz; by default that of Debian's package
  std::uint64_t seed = 0;
  bool augment = false;          ///< move the training images by up to 2 pixels and mirror half of them
  std::int64_t train_limit = 0;  ///< only the first so many images; 0 means all
  std::int64_t valid_limit = 0;
  int prefetch = 2;
};

/// Batches of images f32 [N, 1, 28, 28], normalised, with targets i64 [N]. The training half is shuffled.
/// Error that says what to install when the files are not there.
Data fashion_mnist(const FashionMnistOptions& options = {});

/// One half of it, for a loader of your own: images u8 [N, 1, 28, 28] and targets i64 [N].
TensorDataset fashion_mnist_dataset(bool train, const std::string& dir = "", std::int64_t limit = 0);

}  // namespace halfgrad::data
