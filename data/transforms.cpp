#include "data/transforms.h"

#include <algorithm>
#include <cstring>

#include "engine/error.h"

namespace halfgrad::data {

namespace {

Tensor images_of(const Batch& batch, const char* transform) {
  check(!batch.inputs.empty(), "{}: the batch has no inputs; expected images [N, C, H, W] as the first", transform);
  const Tensor& x = batch.inputs[0];
  check(x.rank() == 4, "{}: the first input has shape {}; expected images [N, C, H, W]", transform, x.shape());
  return x.contiguous();
}

// Calls f(to, from, shape) for the first elements of the new images and of the old, as T*.
template <class F>
void replace_images(Batch& batch, const Tensor& x, F f) {
  Tensor y = empty(x.shape(), x.dtype());
  if (x.numel() > 0) {
    visit_dtype(x.dtype(), [&]<class T>(T) { f(y.data<T>(), static_cast<const T*>(x.data<T>())); });
  }
  batch.inputs[0] = y;
}

}  // namespace

void Normalize::operator()(Batch& batch, Generator&) const {
  const Tensor x = images_of(batch, "Normalize");
  const std::int64_t channels = x.size(1), pixels = x.size(2) * x.size(3);
  check(x.dtype() == f32 || x.dtype() == u8, "Normalize: the images are {}; expected f32, or u8 from 0 to 255",
        name_of(x.dtype()));
  check(std::ssize(mean) == channels && std::ssize(std) == channels,
        "Normalize: {} means and {} standard deviations for images with {} channels; expected one of each "
        "per channel",
        mean.size(), std.size(), channels);
  for (const float s : std) check(s > 0, "Normalize: a standard deviation is {}; expected a positive number", s);

  Tensor y = empty(x.shape(), f32);
  const auto normalize = [&]<class T>(const T* from, float scale) {
    float* to = y.data<float>();
    for (std::int64_t plane = 0; plane < x.size(0) * channels; ++plane, from += pixels, to += pixels) {
      const float m = mean[plane % channels], s = std[plane % channels];
      for (std::int64_t i = 0; i < pixels; ++i) to[i] = (static_cast<float>(from[i]) / scale - m) / s;
    }
  };
  if (x.numel() > 0) {
    if (x.dtype() == u8)
      normalize(static_cast<const std::uint8_t*>(x.data<std::uint8_t>()), 255.0f);
    else
      normalize(static_cast<const float*>(x.data<float>()), 1.0f);
  }
  batch.inputs[0] = y;
}

void RandomShift::operator()(Batch& batch, Generator& generator) const {
  check(pixels >= 0, "RandomShift: pixels is {}; expected 0 or more", pixels);
  const Tensor x = images_of(batch, "RandomShift");
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const auto draw = [&](std::int64_t size) {  // further than its size, an image is gone anyway
    const auto steps = 2 * static_cast<std::uint64_t>(pixels) + 1;
    return std::clamp(static_cast<std::int64_t>(generator.next_below(steps)) - pixels, -size, size);
  };
  replace_images(batch, x, [&]<class T>(T* to, const T* from) {
    std::fill_n(to, x.numel(), T());
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      const std::int64_t down = draw(height), right = draw(width);
      const std::int64_t kept = width - std::abs(right);  // pixels of a row that stay in the image
      for (std::int64_t c = 0; c < channels; ++c, to += height * width, from += height * width) {
        for (std::int64_t row = std::max<std::int64_t>(down, 0); row < height + std::min<std::int64_t>(down, 0);
             ++row) {
          std::copy_n(from + (row - down) * width + std::max<std::int64_t>(-right, 0), kept,
                      to + row * width + std::max<std::int64_t>(right, 0));
        }
      }
    }
  });
}

void RandomFlip::operator()(Batch& batch, Generator& generator) const {
  check(p >= 0 && p <= 1, "RandomFlip: p is {}; expected a probability, from 0 to 1", p);
  const Tensor x = images_of(batch, "RandomFlip");
  const std::int64_t rows = x.size(1) * x.size(2), width = x.size(3);
  replace_images(batch, x, [&]<class T>(T* to, const T* from) {
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      const bool flip = generator.next_uniform() < p;
      for (std::int64_t row = 0; row < rows; ++row, to += width, from += width) {
        if (flip)
          std::reverse_copy(from, from + width, to);
        else
          std::copy_n(from, width, to);
      }
    }
  });
}

void Pad::operator()(Batch& batch, Generator&) const {
  check(pixels >= 0, "Pad: pixels is {}; expected 0 or more", pixels);
  const Tensor x = images_of(batch, "Pad");
  const std::int64_t height = x.size(2), width = x.size(3);
  Tensor y = zeros({x.size(0), x.size(1), height + 2 * pixels, width + 2 * pixels}, x.dtype());
  y.narrow(2, pixels, height).narrow(3, pixels, width).copy_(x);
  batch.inputs[0] = y;
}

void NoiseToImage::operator()(Batch& batch, Generator& generator) const {
  check(noise_sz >= 1, "NoiseToImage: noise_sz is {}; expected 1 or more", noise_sz);
  const Tensor images = images_of(batch, "NoiseToImage");
  Tensor noise = empty({images.size(0), noise_sz, 1, 1});
  const auto counters = static_cast<std::uint64_t>(noise.numel() + 3) / 4;
  backend_for(noise.device())
      .random(Distribution::normal, noise.view_of_data(), 0, 1, generator.seed(), generator.reserve(counters));
  batch.inputs = {noise};
  batch.targets = {images};
}

}  // namespace halfgrad::data
