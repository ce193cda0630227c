#pragma once
// Loop nests of any size and rank, as spaces that a kernel can walk through.

#include <array>
#include <cstdint>
#include <vector>

#include "engine/cuda/space.h"
#include "engine/loops.h"

namespace halfgrad::cuda {

/// A part of a loop nest, and the element of each operand at which it begins.
struct Piece {
  LoopNest nest;
  std::array<std::int64_t, LoopNest::kMaxOperands> begin{};
};

/// Cuts a nest into pieces that fit a Space: at most Space::kMaxRank dimensions, and no more than `limit` elements from
/// the first to the last in each operand. Nearly always that is the nest itself.
std::vector<Piece> pieces(const LoopNest& nest, std::int64_t limit = INT32_MAX);

/// The space of a piece.
Space space_of(const Piece& piece);

}  // namespace halfgrad::cuda
