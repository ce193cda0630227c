#pragma once
// What is done to a batch between the dataset and the model: normalisation and augmentation of images.

#include <cstdint>
#include <functional>
#include <vector>

#include "data/dataset.h"
#include "engine/random.h"

namespace halfgrad::data {

/// Replaces tensors of the batch, never changes them in place: a dataset may hand out its own memory. All
/// randomness comes from `generator`, which the loader keys by (seed, epoch, batch), so that a batch is the
/// same in whichever thread it is made. Called by several threads at once.
using Transform = std::function<void(Batch& batch, Generator& generator)>;

// The transforms below act on the first input, images [N, C, H, W].

/// (x - mean[c]) / std[c] as f32, for f32 images or for u8 images, which are first divided by 255. One mean
/// and std per channel; Error when their number is not C or a std is not positive.
struct Normalize {
  std::vector<float> mean, std;
  void operator()(Batch& batch, Generator& generator) const;
};

/// Moves each image by -pixels ... pixels in both directions; what comes in at the border is 0. Any dtype:
/// before Normalize, the border is black.
struct RandomShift {
  std::int64_t pixels = 2;
  void operator()(Batch& batch, Generator& generator) const;
};

/// Mirrors each image left to right with probability p. Any dtype.
struct RandomFlip {
  double p = 0.5;
  void operator()(Batch& batch, Generator& generator) const;
};

/// Puts so many pixels of value 0 around each image: [N, C, H + 2 * pixels, W + 2 * pixels]. Any dtype: before Normalize,
/// they are black.
struct Pad {
  std::int64_t pixels = 2;
  void operator()(Batch& batch, Generator& generator) const;
};

/// For a GAN, as the last transform: the images become the target, in place of the labels, and the input is standard
/// normal noise f32 [N, noise_sz, 1, 1] to make images of.
struct NoiseToImage {
  std::int64_t noise_sz = 100;
  void operator()(Batch& batch, Generator& generator) const;
};

}  // namespace halfgrad::data
