#include "engine/cpu/reduction.h"

#include <limits>

namespace halfgrad::cpu {
namespace {

constexpr std::int64_t kTaskElements = 32 * 1024;  // enough work to be worth a thread's attention
constexpr std::int64_t kMaxWidth = 256;            // partial results of a task stay in the first-level cache
constexpr std::int64_t kRowTile = 1024;            // lengths of tiles, see kernels/reduce.h
constexpr std::int64_t kColumnTile = 32;

// Where a stride belongs in the order from far to near. Repeated elements (stride 0) may be looped over
// outside.
std::int64_t distance(std::int64_t stride) { return stride == 0 ? std::numeric_limits<std::int64_t>::max() : stride; }

}  // namespace

Reduction::Reduction(const Shape& shape, std::uint64_t reduced, std::initializer_list<const Strides*> operands,
                     const Strides& out) {
  const auto operand_count = static_cast<int>(operands.size());
  for (int d = 0; d < shape.rank(); ++d) {
    if ((reduced >> d & 1) != 0) count_ *= shape[d];
    if (shape[d] == 1) continue;
    Dim dim;
    dim.size = shape[d];
    for (int i = 0; i < operand_count; ++i) dim.stride[i] = (*operands.begin()[i])[d];
    dim.out = out[d];
    ((reduced >> d & 1) != 0 ? reduced_ : kept_).push_back(dim);
  }

  // Far dimensions first; two that step through memory like one become one.
  for (auto* dims : {&kept_, &reduced_}) {
    std::stable_sort(dims->begin(), dims->end(),
                     [](const Dim& a, const Dim& b) { return distance(a.stride[0]) > distance(b.stride[0]); });
    std::vector<Dim> merged;
    for (const Dim& dim : *dims) {
      bool joins = !merged.empty() && (dims == &reduced_ || merged.back().out == dim.out * dim.size);
      for (int i = 0; joins && i < operand_count; ++i) joins = merged.back().stride[i] == dim.stride[i] * dim.size;
      if (joins) {
        const std::int64_t outer_size = merged.back().size;
        merged.back() = dim;
        merged.back().size *= outer_size;
      } else {
        merged.push_back(dim);
      }
    }
    *dims = std::move(merged);
  }
  const auto take_last = [](std::vector<Dim>& dims) {
    Dim last;
    if (!dims.empty()) last = dims.back(), dims.pop_back();
    return last;
  };
  width_ = take_last(kept_);
  length_ = take_last(reduced_);

  bool dense_length = true;
  for (int i = 0; i < operand_count; ++i) dense_length = dense_length && length_.stride[i] == 1;
  tile_length_ = std::min(length_.size, dense_length ? kRowTile : kColumnTile);
  // Neighbouring outputs share a tile when they are closer in memory than the elements to be reduced; else
  // only as many as give a tile of reasonable size.
  const bool by_columns = distance(width_.stride[0]) < distance(length_.stride[0]) || count_ == 1;
  const std::int64_t rows =
      std::max(kTaskElements / std::max<std::int64_t>(count_, 1), kRowTile / std::max<std::int64_t>(tile_length_, 1));
  tile_width_ = std::clamp<std::int64_t>(by_columns ? width_.size : std::min(width_.size, rows), 1, kMaxWidth);

  groups_ = (width_.size + tile_width_ - 1) / tile_width_;
  for (const Dim& dim : kept_) groups_ *= dim.size;
  leaves_ = tile_length_ == 0 ? 0 : (length_.size + tile_length_ - 1) / tile_length_;
  for (const Dim& dim : reduced_) leaves_ *= dim.size;
  leaves_ = std::max<std::int64_t>(leaves_, 1);  // an empty one gives the identity
  while (chunk_ < leaves_ && chunk_ * tile_length_ * tile_width_ < kTaskElements) chunk_ *= 2;
}

void Reduction::set_outputs(Tile& tile, std::int64_t group) const {
  const std::int64_t blocks = (width_.size + tile_width_ - 1) / tile_width_;
  const std::int64_t first = group % blocks * tile_width_;
  group /= blocks;
  tile.width = std::min(tile_width_, width_.size - first);
  tile.out_offset = first * width_.out;
  tile.out_stride = width_.out;
  for (int i = 0; i < kMaxOperands; ++i) {
    tile.offset[i] = first * width_.stride[i];
    tile.width_stride[i] = width_.stride[i];
    tile.length_stride[i] = length_.stride[i];
  }
  for (auto dim = kept_.rbegin(); dim != kept_.rend(); ++dim) {
    const std::int64_t at = group % dim->size;
    group /= dim->size;
    tile.out_offset += at * dim->out;
    for (int i = 0; i < kMaxOperands; ++i) tile.offset[i] += at * dim->stride[i];
  }
}

void Reduction::set_leaf(Tile& tile, std::int64_t leaf) const {
  if (count_ == 0) {
    tile.length = 0;
    return;
  }
  const std::int64_t blocks = (length_.size + tile_length_ - 1) / tile_length_;
  const std::int64_t first = leaf % blocks * tile_length_;
  leaf /= blocks;
  tile.length = std::min(tile_length_, length_.size - first);
  for (int i = 0; i < kMaxOperands; ++i) tile.offset[i] += first * length_.stride[i];
  for (auto dim = reduced_.rbegin(); dim != reduced_.rend(); ++dim) {
    const std::int64_t at = leaf % dim->size;
    leaf /= dim->size;
    for (int i = 0; i < kMaxOperands; ++i) tile.offset[i] += at * dim->stride[i];
  }
}

std::int64_t Reduction::tasks_per_chunk(std::int64_t elements_per_task) const {
  return kTaskElements / std::max<std::int64_t>(elements_per_task, 1);
}

}  // namespace halfgrad::cpu
