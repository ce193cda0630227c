#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "data/transforms.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::data;

namespace {

Tensor apply(const Transform& transform, const Tensor& images, std::uint64_t seed = 0) {
  Batch batch{.inputs = {images}, .targets = {}};
  Generator generator(seed);
  transform(batch, generator);
  return batch.inputs[0];
}

}  // namespace

TEST_CASE("Normalize uses the mean and std of each channel; bytes count from 0 to 1") {
  const Normalize normalize{.mean = {0.5f, 1.0f}, .std = {2.0f, 4.0f}};
  const Tensor x = tensor({0, 1, 2, 3, 4, 5, 6, 7}).view({2, 2, 1, 2});
  CHECK(apply(normalize, x).to_vector<float>() ==
        std::vector<float>{-0.25f, 0.25f, 0.25f, 0.5f, 1.75f, 2.25f, 1.25f, 1.5f});
  CHECK(x.to_vector<int>() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});

  const Tensor bytes = from_vector(std::vector<std::uint8_t>{0, 51, 255, 102}).view({1, 2, 1, 2});
  const Tensor y = apply(normalize, bytes);
  CHECK(y.dtype() == f32);
  CHECK(y.to_vector<float>() ==
        std::vector<float>{(0 - 0.5f) / 2, (51 / 255.0f - 0.5f) / 2, 0.0f, (102 / 255.0f - 1) / 4});
}

TEST_CASE("Normalize refuses what it cannot normalise") {
  const Normalize one{.mean = {0}, .std = {1}};
  CHECK_THROWS_WITH_AS(apply(one, zeros({2, 3})), doctest::Contains("shape [2, 3]; expected images"), Error);
  CHECK_THROWS_WITH_AS(apply(one, zeros({2, 3, 4, 4})), doctest::Contains("images with 3 channels"), Error);
  CHECK_THROWS_WITH_AS(apply(one, zeros({2, 1, 4, 4}, f64)), doctest::Contains("the images are f64"), Error);
  CHECK_THROWS_WITH_AS(apply({Normalize{.mean = {0}, .std = {0}}}, zeros({2, 1, 4, 4})),
                       doctest::Contains("standard deviation is 0"), Error);
  Batch empty_batch;
  Generator generator;
  CHECK_THROWS_WITH_AS(one(empty_batch, generator), doctest::Contains("no inputs"), Error);
}

TEST_CASE("RandomShift moves each whole image by at most so many pixels, with zeros behind it") {
  constexpr std::int64_t n = 300, size = 5;
  const Tensor x = arange(2 * size * size, i32).view({1, 2, size, size}).expand({n, 2, size, size});
  const std::vector<int> image = x[0].to_vector<int>();
  const Tensor y = apply(RandomShift{.pixels = 2}, x.contiguous());
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::vector<int> moved = y[i].to_vector<int>();
    int matches = 0;
    for (std::int64_t down = -2; down <= 2; ++down) {
      for (std::int64_t right = -2; right <= 2; ++right) {
        std::vector<int> expected(2 * size * size, 0);
        for (std::int64_t c = 0; c < 2; ++c) {
          for (std::int64_t row = 0; row < size; ++row) {
            for (std::int64_t col = 0; col < size; ++col) {
              const std::int64_t r = row - down, k = col - right;
              if (r >= 0 && r < size && k >= 0 && k < size) {
                expected[(c * size + row) * size + col] = image[(c * size + r) * size + k];
              }
            }
          }
        }
        if (moved == expected) {
          ++matches;
          seen.insert({down, right});
        }
      }
    }
    CHECK(matches == 1);
  }
  CHECK(seen.size() == 25);  // every shift occurs among 300 images
  CHECK(apply(RandomShift{.pixels = 0}, x.contiguous()).to_vector<int>() == x.to_vector<int>());
}

TEST_CASE("RandomShift may push a small image out of sight") {
  const Tensor x = ones({50, 1, 2, 3}, u8);
  const Tensor y = apply(RandomShift{.pixels = 1000}, x);
  CHECK(y.shape() == x.shape());
  for (const int value : y.to_vector<int>()) CHECK((value == 0 || value == 1));
  CHECK_THROWS_WITH_AS(apply(RandomShift{.pixels = -1}, x), doctest::Contains("pixels is -1"), Error);
}

TEST_CASE("RandomFlip mirrors rows, for a share p of the images") {
  const Tensor x = arange(6, f32).view({1, 1, 2, 3}).expand({400, 1, 2, 3}).contiguous();
  const std::vector<int> plain = {0, 1, 2, 3, 4, 5}, mirrored = {2, 1, 0, 5, 4, 3};
  const auto flipped = [&](double p) {
    const Tensor y = apply(RandomFlip{.p = p}, x);
    int count = 0;
    for (std::int64_t i = 0; i < 400; ++i) {
      const std::vector<int> image = y[i].to_vector<int>();
      CHECK((image == plain || image == mirrored));
      count += image == mirrored;
    }
    return count;
  };
  CHECK(flipped(0) == 0);
  CHECK(flipped(1) == 400);
  CHECK(flipped(0.25) > 60);  // 100 expected, with a standard deviation of 8.7
  CHECK(flipped(0.25) < 140);
  CHECK_THROWS_WITH_AS(apply(RandomFlip{.p = 1.5}, x), doctest::Contains("p is 1.5"), Error);
}

TEST_CASE("random transforms depend on their generator alone") {
  const Tensor x = arange(64 * 16, i32).view({64, 1, 4, 4});
  for (const Transform& transform : {Transform(RandomShift{}), Transform(RandomFlip{})}) {
    CHECK(apply(transform, x, 1).to_vector<int>() == apply(transform, x, 1).to_vector<int>());
    CHECK(apply(transform, x, 1).to_vector<int>() != apply(transform, x, 2).to_vector<int>());
  }
}

TEST_CASE("Pad puts zeros around each image, whatever the dtype and layout") {
  for (const DType dtype : {f32, u8, f16}) {
    const Tensor x = arange(1, 9, 1, f32).to(dtype).view({2, 1, 2, 2}).transpose(2, 3);
    const Tensor y = apply(Pad{.pixels = 1}, x);
    CHECK(y.dtype() == dtype);
    CHECK(y.shape() == Shape{2, 1, 4, 4});
    CHECK(y.to_vector<int>() == std::vector<int>{0, 0, 0, 0, 0, 1, 3, 0, 0, 2, 4, 0, 0, 0, 0, 0,  //
                                                 0, 0, 0, 0, 0, 5, 7, 0, 0, 6, 8, 0, 0, 0, 0, 0});
    CHECK(apply(Pad{.pixels = 0}, x).to_vector<int>() == x.to_vector<int>());
  }
  CHECK(apply(Pad{.pixels = 2}, zeros({0, 3, 5, 7})).shape() == Shape{0, 3, 9, 11});
  CHECK_THROWS_WITH_AS(apply(Pad{.pixels = -1}, zeros({1, 1, 2, 2})), doctest::Contains("pixels is -1"), Error);
  CHECK_THROWS_WITH_AS(apply(Pad{}, zeros({2, 2})), doctest::Contains("Pad: the first input has shape"), Error);
}

TEST_CASE("NoiseToImage makes the images the target of noise, which depends on seed, epoch and batch alone") {
  const Tensor images = arange(7 * 4, f32).view({7, 1, 2, 2}), labels = arange(7);
  Batch batch{.inputs = {images}, .targets = {labels}};
  Generator generator(3);
  NoiseToImage{.noise_sz = 1000}(batch, generator);
  REQUIRE(batch.inputs.size() == 1);
  REQUIRE(batch.targets.size() == 1);
  CHECK(batch.inputs[0].shape() == Shape{7, 1000, 1, 1});
  CHECK(batch.inputs[0].dtype() == f32);
  CHECK(batch.targets[0].to_vector<float>() == images.to_vector<float>());
  double sum = 0, squares = 0;
  for (const double value : batch.inputs[0].to_vector<double>()) sum += value, squares += value * value;
  CHECK(std::abs(sum / 7000) < 0.06);          // five standard errors, 1 / sqrt(7000) each
  CHECK(std::abs(squares / 7000 - 1) < 0.09);  // five, sqrt(2 / 7000) each
  const std::vector<float> first = batch.inputs[0].to_vector<float>();
  NoiseToImage{.noise_sz = 1000}(batch = {.inputs = {images}, .targets = {}}, generator);
  CHECK(batch.inputs[0].to_vector<float>() != first);  // the generator has moved on

  // The noise of all batches of an epoch, from batch `from` on.
  const auto noise = [&](std::uint64_t seed, int prefetch, std::int64_t epoch, std::int64_t from) {
    DataLoader loader(TensorDataset(images, labels), {.batch_size = 3,
                                                      .shuffle = true,
                                                      .seed = seed,
                                                      .prefetch = prefetch,
                                                      .transforms = {NoiseToImage{.noise_sz = 5}}});
    loader.set_epoch(epoch, from);
    std::vector<std::vector<float>> all;
    for (const Batch& made : loader) all.push_back(made.inputs[0].to_vector<float>());
    return all;
  };
  const auto epoch = noise(1, 0, 4, 0);
  REQUIRE(epoch.size() == 3);
  CHECK(epoch[2].size() == 5);
  CHECK(epoch[0] != epoch[1]);
  CHECK(noise(1, 2, 4, 0) == epoch);
  CHECK(noise(1, 2, 4, 1) == std::vector(epoch.begin() + 1, epoch.end()));
  CHECK(noise(2, 0, 4, 0) != epoch);
  CHECK(noise(1, 0, 5, 0) != epoch);

  CHECK_THROWS_WITH_AS(apply(NoiseToImage{.noise_sz = 0}, images), doctest::Contains("noise_sz is 0"), Error);
  CHECK_THROWS_WITH_AS(apply(NoiseToImage{}, zeros({2, 2})), doctest::Contains("NoiseToImage: the first input"), Error);
}
