#include "data/dataset.h"

#include <cstring>
#include <utility>

#include "engine/error.h"
#include "engine/random.h"

namespace halfgrad::data {

namespace {

void check_index(const char* owner, std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "{}: item {} was asked for, but there are {} items, numbered from 0", owner, index,
        size);
}

Tensor row_major(const Tensor& x, const char* kind, std::size_t number) {
  check(x.defined(), "TensorDataset: {} {} is an undefined tensor; give one with a row per item", kind, number);
  check(x.rank() > 0, "TensorDataset: {} {} is a single number; its first dimension must count the items", kind,
        number);
  check(x.device().is_cpu(),
        "TensorDataset: {} {} is on {}, expected host memory: batches are put together on the "
        "CPU; use .to(Device::cpu())",
        kind, number, x.device());
  return x.detach().contiguous();
}

// x[indices]
Tensor take_rows(const Tensor& x, const std::vector<std::int64_t>& indices) {
  Shape shape = x.shape();
  const std::size_t row = x.numel() == 0 ? 0 : static_cast<std::size_t>(x.numel() / shape[0]) * size_of(x.dtype());
  shape[0] = static_cast<std::int64_t>(indices.size());
  Tensor y = empty(shape, x.dtype());
  if (y.numel() == 0) return y;
  const auto* from = static_cast<const std::byte*>(x.raw_data());
  auto* to = static_cast<std::byte*>(y.raw_data());
  for (const std::int64_t index : indices) {
    std::memcpy(to, from + static_cast<std::size_t>(index) * row, row);
    to += row;
  }
  return y;
}

}  // namespace

TensorDataset::TensorDataset(const Tensors& inputs, const Tensors& targets) {
  check(!inputs.empty(), "TensorDataset: there are no inputs; give at least one tensor with a row per item");
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(row_major(inputs[i], "input", i));
  for (std::size_t i = 0; i < targets.size(); ++i) targets_.push_back(row_major(targets[i], "target", i));
  size_ = inputs_[0].size(0);
  const auto check_rows = [&](const Tensors& tensors, const char* kind) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check(tensors[i].size(0) == size_,
            "TensorDataset: input 0 has {} rows, but {} {} has shape {}; every input and "
            "target needs one row per item",
            size_, kind, i, tensors[i].shape());
    }
  };
  check_rows(inputs_, "input");
  check_rows(targets_, "target");
}

TensorDataset::TensorDataset(const Tensor& input, const Tensor& target)
    : TensorDataset(Tensors{input}, target.defined() ? Tensors{target} : Tensors{}) {}

Batch TensorDataset::get(const std::vector<std::int64_t>& indices) const {
  for (const std::int64_t index : indices) check_index("TensorDataset", index, size_);
  Batch batch;
  for (const Tensor& x : inputs_) batch.inputs.push_back(take_rows(x, indices));
  for (const Tensor& y : targets_) batch.targets.push_back(take_rows(y, indices));
  return batch;
}

Subset::Subset(DatasetPtr dataset, std::vector<std::int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  check(dataset_ != nullptr, "Subset: there is no dataset; give one to take items from");
  for (const std::int64_t index : indices_) check_index("Subset", index, dataset_->size());
}

Batch Subset::get(const std::vector<std::int64_t>& indices) const {
  std::vector<std::int64_t> inner;
  inner.reserve(indices.size());
  for (const std::int64_t index : indices) {
    check_index("Subset", index, size());
    inner.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  return dataset_->get(inner);
}

std::vector<Subset> random_split(const DatasetPtr& dataset, const std::vector<std::int64_t>& lengths,
                                 std::uint64_t seed) {
  check(dataset != nullptr, "random_split: there is no dataset; give one to split");
  std::int64_t left = dataset->size();
  for (const std::int64_t length : lengths) {
    check(length >= 0, "random_split: a part of length {} was asked for; lengths are 0 or more", length);
    check(length <= left, "random_split: the lengths add up to more than the {} items of the dataset", dataset->size());
    left -= length;
  }
  check(left == 0, "random_split: the lengths add up to {}, but the dataset has {} items; every item must go to a part",
        dataset->size() - left, dataset->size());

  Generator generator(seed);
  const std::vector<std::int64_t> order = random_permutation(dataset->size(), generator);
  std::vector<Subset> parts;
  auto first = order.begin();
  for (const std::int64_t length : lengths) {
    parts.emplace_back(dataset, std::vector<std::int64_t>(first, first + length));
    first += length;
  }
  return parts;
}

}  // namespace halfgrad::data
