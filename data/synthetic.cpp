#include "data/synthetic.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "engine/error.h"
#include "engine/philox.h"

namespace halfgrad::data {

namespace {

float normal(Generator& generator) {
  const std::uint32_t a = generator.next_uint32(), b = generator.next_uint32();
  return normal_pair(a, b).first;
}

// Item i is of class i % classes, and sample(class, row) writes its features.
template <class F>
Data make_data(std::int64_t n, std::int64_t features, std::int64_t classes, std::uint64_t seed, std::int64_t batch_size,
               F sample) {
  check(n >= 5, "synthetic data: n is {}; expected at least 5 items, since every fifth is for validation", n);
  check(classes >= 2, "synthetic data: classes is {}; expected at least 2", classes);
  Tensor x = empty({n, features}), y = empty({n}, i64);
  for (std::int64_t i = 0; i < n; ++i) {
    y.data<std::int64_t>()[i] = i % classes;
    sample(i % classes, x.data<float>() + i * features);
  }
  const std::int64_t train = n - n / 5;
  const LoaderOptions options{.batch_size = batch_size, .shuffle = true, .seed = seed};
  const LoaderOptions in_order{.batch_size = batch_size, .seed = seed};
  return {.train = DataLoader(TensorDataset(x.slice(0, 0, train), y.slice(0, 0, train)), options),
          .valid = DataLoader(TensorDataset(x.slice(0, train), y.slice(0, train)), in_order)};
}

}  // namespace

Data blobs(const BlobsOptions& options) {
  check(options.features >= 2, "blobs: features is {}; expected at least 2, for the circle of centres",
        options.features);
  Generator generator(options.seed);
  const double step = 2 * std::numbers::pi / static_cast<double>(options.classes);  // from centre to centre
  const double radius = 1.5 / std::sin(step / 2);                                   // of a circle with chords of 3
  return make_data(options.n, options.features, options.classes, options.seed, options.batch_size,
                   [&](std::int64_t label, float* row) {
                     for (std::int64_t f = 0; f < options.features; ++f) row[f] = 0.5f * normal(generator);
                     const double angle = step * static_cast<double>(label);
                     row[0] += static_cast<float>(radius * std::cos(angle));
                     row[1] += static_cast<float>(radius * std::sin(angle));
                   });
}

Data spirals(const SpiralsOptions& options) {
  Generator generator(options.seed);
  return make_data(
      options.n, 2, options.classes, options.seed, options.batch_size, [&](std::int64_t label, float* row) {
        const double along = generator.next_uniform();  // from the centre to the end of the arm
        const double angle =
            2 * std::numbers::pi * (along + static_cast<double>(label) / static_cast<double>(options.classes));
        const auto noise = static_cast<float>(options.noise);
        row[0] = static_cast<float>(along * std::cos(angle)) + noise * normal(generator);
        row[1] = static_cast<float>(along * std::sin(angle)) + noise * normal(generator);
      });
}

}  // namespace halfgrad::data
