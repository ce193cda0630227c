#pragma once
// DataLoader: goes through a dataset in batches, once per loop.
//
//   DataLoader loader(TensorDataset(x, y), {.batch_size = 64, .shuffle = true});
//   for (const Batch& batch : loader) ...  // one epoch
//
// What an epoch holds depends on (seed, epoch) alone: each epoch has its own order, and the same epoch is the
// same again in another run, with prefetching or without, alone or beside other loops.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/transforms.h"

namespace halfgrad::data {

struct LoaderOptions {
  std::int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  ///< leave out the last batch when it is short
  std::uint64_t seed = 0;
  int prefetch = 2;  ///< batches made ahead by a thread of the loop's own; 0 makes each when it is asked for
  /// An infinity or NaN in what the dataset gives is an Error that names the item, before it is a NaN loss.
  bool check_finite = true;
  std::vector<Transform> transforms = {};  ///< applied to each batch, in this order
};

class BatchSource;  // makes the batches of one epoch, loader.cpp

/// A position in one epoch. Owns the thread that prefetches, and ends it when destroyed.
class BatchIterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  explicit BatchIterator(std::unique_ptr<BatchSource> source);
  BatchIterator(BatchIterator&&) noexcept;
  BatchIterator& operator=(BatchIterator&&) noexcept;
  ~BatchIterator();

  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return &*batch_; }
  /// Throws what the dataset or a transform threw for this batch; the loop is then at its end.
  BatchIterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !batch_; }

 private:
  std::unique_ptr<BatchSource> source_;
  mutable std::optional<Batch> batch_;  // none at the end
};

/// A copy is cheap: it shares the dataset, and counts its epochs itself.
class DataLoader {
 public:
  /// No data: a loop over it has no batches.
  DataLoader() = default;
  explicit DataLoader(DatasetPtr dataset, LoaderOptions options = {});
  template <std::derived_from<Dataset> D>
  explicit DataLoader(D dataset, LoaderOptions options = {})
      : DataLoader(DatasetPtr(std::make_shared<const D>(std::move(dataset))), std::move(options)) {}

  /// Starts the loop of epoch(), which then counts one up.
  BatchIterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// Batches in a whole epoch.
  std::int64_t size() const;
  /// Items in batch 0 ... size() - 1: batch_size, in the last one perhaps fewer.
  std::int64_t samples_in(std::int64_t batch) const;
  /// The epoch that the next loop goes through: 0, and one more for each loop begun since.
  std::int64_t epoch() const { return epoch_; }
  /// Lets the next loop go through this epoch, from its batch `first_batch` on: to resume a run where it
  /// stopped.
  void set_epoch(std::int64_t epoch, std::int64_t first_batch = 0);

  const DatasetPtr& dataset() const { return dataset_; }
  const LoaderOptions& options() const { return options_; }

 private:
  DatasetPtr dataset_;
  LoaderOptions options_;
  std::int64_t epoch_ = 0, first_batch_ = 0;
};

/// What a Learner trains on and what it is validated on (a "DataBunch").
struct Data {
  DataLoader train;
  DataLoader valid;
};

}  // namespace halfgrad::data
