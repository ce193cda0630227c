#pragma once
// How a reduction over some dimensions of strided memory is cut into tiles, and how the tiles are put
// together again.
//
// A tile is `width` neighbouring outputs times `length` elements to be reduced for each. Dimensions are
// sorted by stride and merged first, so that a tile follows the memory, whatever the order of the dimensions
// is. Tiles of the same outputs are combined like a balanced binary tree: rounding errors grow with the
// logarithm of their number. Cuts depend on shapes and strides alone, so the result has the same bits with
// any number of threads.

#include <cstdint>
#include <vector>

#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"
#include "engine/shape.h"

namespace halfgrad::cpu {

/// How many partial results of a tree are alive at a time.
constexpr int tree_levels(std::int64_t leaves) {
  int n = 2;
  for (; leaves > 1; leaves /= 2) ++n;
  return n;
}

/// Combines leaves 0, 1, 2, ... in a balanced binary tree while it holds only log2 of them.
template <class Slot, class Merge>
class PairwiseTree {
 public:
  /// `memory` has room for tree_levels(leaves) partial results of `size` slots; merge(a, b) adds b to a.
  PairwiseTree(Slot* memory, std::int64_t size, Merge merge) : memory_(memory), size_(size), merge_(merge) {}

  /// Where to write the next leaf, before push().
  Slot* next() { return memory_ + depth_ * size_; }
  void push() {
    ++depth_;
    ++leaves_;
    for (std::int64_t n = leaves_; n % 2 == 0; n /= 2) merge_top();
  }
  /// The result.
  const Slot* finish() {
    while (depth_ > 1) merge_top();
    return memory_;
  }

 private:
  void merge_top() {
    --depth_;
    merge_(memory_ + (depth_ - 1) * size_, memory_ + depth_ * size_);
  }

  Slot* memory_;
  std::int64_t size_;
  Merge merge_;
  std::int64_t depth_ = 0, leaves_ = 0;
};

class Reduction {
 public:
  static constexpr int kMaxOperands = 3;

  struct Tile {
    std::int64_t width = 1, length = 1;
    // Per operand, in elements: where the tile starts, and the steps from output to output and along the
    // reduction.
    std::int64_t offset[kMaxOperands] = {}, width_stride[kMaxOperands] = {}, length_stride[kMaxOperands] = {};
    std::int64_t out_offset = 0, out_stride = 0;  ///< of the outputs
  };

  /// Operands of one shape are reduced over the dimensions in `reduced`, a bit per dimension; the layout of
  /// the first decides on the tiles. `out` are the strides of the outputs.
  Reduction(const Shape& shape, std::uint64_t reduced, std::initializer_list<const Strides*> operands,
            const Strides& out);

  /// How many elements are reduced to one.
  std::int64_t count() const { return count_; }

  /// The reduction. A partial result is values * width slots.
  ///   leaf(slots, tile)            writes the partial result of a tile (of length 0 when there is nothing to
  ///   reduce) merge(a, b, width)           adds the partial result b to a finish(slots, tile) writes the
  ///   outputs of the tile from the result
  template <class Slot, class Leaf, class Merge, class Finish>
  void run(int values, Leaf leaf, Merge merge, Finish finish) const;

  /// f(tile) for all tiles, in parallel: for an elementwise pass in the same order.
  template <class F>
  void for_each_tile(F f) const;

 private:
  struct Dim {
    std::int64_t size = 1;
    std::int64_t stride[kMaxOperands] = {};
    std::int64_t out = 0;
  };

  void set_outputs(Tile& tile, std::int64_t group) const;
  void set_leaf(Tile& tile, std::int64_t leaf) const;
  std::int64_t tasks_per_chunk(std::int64_t elements_per_task) const;

  std::vector<Dim> kept_, reduced_;  // all but the innermost of each kind
  Dim width_, length_;               // the innermost
  std::int64_t count_ = 1;           // elements per output
  std::int64_t tile_width_ = 1, tile_length_ = 1;
  std::int64_t groups_ = 1;  // of outputs, each up to tile_width_ of them
  std::int64_t leaves_ = 1;  // tiles per group
  std::int64_t chunk_ = 1;   // leaves per task: a power of two
};

// --- inside ----------------------------------------------------------------------------------------------------------

template <class Slot, class Leaf, class Merge, class Finish>
void Reduction::run(int values, Leaf leaf, Merge merge, Finish finish) const {
  const std::int64_t size = values * tile_width_;
  const std::int64_t chunks = (leaves_ + chunk_ - 1) / chunk_;
  const auto bytes = [&](std::int64_t partial_results) {
    return static_cast<std::size_t>(partial_results * size) * sizeof(Slot);
  };
  const Scratch partial_memory(chunks > 1 ? bytes(groups_ * chunks) : 0);
  auto* partial = partial_memory.as<Slot>();

  parallel_for(groups_ * chunks, tasks_per_chunk(tile_width_ * chunk_ * tile_length_),
               [&](std::int64_t begin, std::int64_t end) {
                 const Scratch memory(bytes(tree_levels(chunk_)));
                 for (std::int64_t task = begin; task < end; ++task) {
                   Tile tile;
                   set_outputs(tile, task / chunks);
                   PairwiseTree tree(memory.as<Slot>(), size, [&](Slot* a, const Slot* b) { merge(a, b, tile.width); });
                   const std::int64_t first = task % chunks * chunk_;
                   for (std::int64_t i = first; i < std::min(first + chunk_, leaves_); ++i) {
                     Tile part = tile;
                     set_leaf(part, i);
                     leaf(tree.next(), part);
                     tree.push();
                   }
                   const Slot* result = tree.finish();
                   if (chunks == 1) {
                     finish(result, tile);
                   } else {
                     std::copy_n(result, size, partial + task * size);
                   }
                 }
               });
  if (chunks == 1) return;

  parallel_for(groups_, tasks_per_chunk(chunks * size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      Tile tile;
      set_outputs(tile, group);
      Slot* results = partial + group * chunks * size;
      for (std::int64_t step = 1; step < chunks; step *= 2)
        for (std::int64_t i = 0; i + step < chunks; i += 2 * step)
          merge(results + i * size, results + (i + step) * size, tile.width);
      finish(results, tile);
    }
  });
}

template <class F>
void Reduction::for_each_tile(F f) const {
  parallel_for(groups_ * leaves_, tasks_per_chunk(tile_width_ * tile_length_),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   Tile tile;
                   set_outputs(tile, i / leaves_);
                   set_leaf(tile, i % leaves_);
                   f(tile);
                 }
               });
}

}  // namespace halfgrad::cpu
