#pragma once
// Where batches come from. A dataset is asked for a whole batch at once, so that it can build each tensor in
// one piece instead of stacking many small ones.

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/tensor.h"

namespace halfgrad::data {

/// What a model is given and what it should answer. The first dimension of every tensor counts the items.
struct Batch {
  Tensors inputs;
  Tensors targets;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// The items at `indices`, in this order. Called by several threads at once, so it must not change the
  /// dataset.
  virtual Batch get(const std::vector<std::int64_t>& indices) const = 0;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Items that are rows of tensors in host memory: item i is row i of every input and every target.
class TensorDataset : public Dataset {
 public:
  /// Keeps row-major tensors without a copy. Error unless all have the same number of rows.
  explicit TensorDataset(const Tensors& inputs, const Tensors& targets = {});
  explicit TensorDataset(const Tensor& input, const Tensor& target = {});

  std::int64_t size() const override { return size_; }
  /// Copies rows, so that changing a batch in place leaves the dataset alone. Error when an index is out of
  /// range.
  Batch get(const std::vector<std::int64_t>& indices) const override;
  const Tensors& inputs() const { return inputs_; }
  const Tensors& targets() const { return targets_; }

 private:
  Tensors inputs_, targets_;
  std::int64_t size_;
};

/// The items of another dataset at `indices`; Error when one is out of range.
class Subset : public Dataset {
 public:
  Subset(DatasetPtr dataset, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Batch get(const std::vector<std::int64_t>& indices) const override;
  const std::vector<std::int64_t>& indices() const { return indices_; }

 private:
  DatasetPtr dataset_;
  std::vector<std::int64_t> indices_;
};

/// Shares the items out at random, each to one part: `random_split(dataset, {50000, 10000}, seed)`. Error
/// unless the lengths add up to the size of the dataset.
std::vector<Subset> random_split(const DatasetPtr& dataset, const std::vector<std::int64_t>& lengths,
                                 std::uint64_t seed = 0);

}  // namespace halfgrad::data
