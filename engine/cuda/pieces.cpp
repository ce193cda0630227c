#include "engine/cuda/pieces.h"

namespace halfgrad::cuda {

namespace {

bool fits(const LoopNest& nest, std::int64_t limit) {
  if (nest.shape.rank() > Space::kMaxRank || nest.numel > limit) return false;
  for (const Strides& strides : nest.strides) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) last += (nest.shape[d] - 1) * strides[d];
    if (last >= limit) return false;
  }
  return true;
}

// Halves the outermost dimension until the pieces fit, and drops it when it is down to 1.
void cut(Piece piece, std::int64_t limit, std::vector<Piece>& out) {
  LoopNest& nest = piece.nest;
  if (nest.shape[0] == 1 && nest.shape.rank() > 1) {
    nest.shape.erase(0);
    for (Strides& strides : nest.strides)
      if (!strides.empty()) strides.erase(0);
    return cut(std::move(piece), limit, out);
  }
  if (fits(nest, limit)) return out.push_back(std::move(piece));
  Piece rest = piece;
  const std::int64_t half = nest.shape[0] / 2;
  rest.nest.shape[0] -= half;
  nest.shape[0] = half;
  nest.numel = nest.shape.numel();
  rest.nest.numel = rest.nest.shape.numel();
  for (std::size_t k = 0; k < nest.strides.size(); ++k)
    if (!nest.strides[k].empty()) rest.begin[k] += half * nest.strides[k][0];
  cut(std::move(piece), limit, out);
  cut(std::move(rest), limit, out);
}

}  // namespace

std::vector<Piece> pieces(const LoopNest& nest, std::int64_t limit) {
  std::vector<Piece> out;
  cut({nest, {}}, limit, out);
  return out;
}

Space space_of(const Piece& piece) {
  static_assert(Space::kMaxOperands == LoopNest::kMaxOperands);
  const LoopNest& nest = piece.nest;
  Space space;
  space.numel = static_cast<std::uint32_t>(nest.numel);
  space.rank = nest.shape.rank();
  for (std::size_t d = 0; d < nest.shape.size(); ++d) {
    space.size[d] = Divisor(static_cast<std::uint32_t>(nest.shape[d]));
    for (std::size_t k = 0; k < nest.strides.size(); ++k)
      if (!nest.strides[k].empty()) space.stride[k][d] = static_cast<std::uint32_t>(nest.strides[k][d]);
  }
  return space;
}

}  // namespace halfgrad::cuda
