#pragma once
// Small made-up classification problems, for first steps and for tests. The classes are of equal size; a
// fifth of the items is for validation. Inputs are f32 [N, features], targets i64 [N].

#include <cstdint>

#include "data/loader.h"

namespace halfgrad::data {

struct BlobsOptions {
  std::int64_t n = 1000;  ///< items, training and validation together
  std::int64_t features = 2;
  std::int64_t classes = 3;
  std::uint64_t seed = 0;
  std::int64_t batch_size = 32;
};

/// A round cloud of points per class, of standard deviation 0.5, the centres on a circle with neighbours 3
/// apart: a linear model separates them almost perfectly. Features beyond the second are noise.
Data blobs(const BlobsOptions& options = {});

struct SpiralsOptions {
  std::int64_t n = 1000;
  std::int64_t classes = 2;
  double noise = 0.05;  ///< standard deviation of each coordinate
  std::uint64_t seed = 0;
  std::int64_t batch_size = 32;
};

/// An arm of a spiral per class, wound once around the origin, in the square [-1, 1]^2: a linear model cannot
/// tell them apart, a small network can.
Data spirals(const SpiralsOptions& options = {});

}  // namespace halfgrad::data
