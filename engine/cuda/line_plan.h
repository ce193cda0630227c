#pragma once
// From views to lines, on the host.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/backend.h"
#include "engine/cuda/lines.h"
#include "engine/cuda/pieces.h"

namespace halfgrad::cuda {

/// A parameter or a statistic [n]; absent when x is.
Vector vector_of(const View& x);

/// Lines of operands along the dimensions whose bits are set in `along`. The first operand has all elements, and decides
/// which lines are neighbours. The others may be absent, or have size 1 in some of its dimensions: there, all its elements
/// go with that one.
class LinePlan {
 public:
  LinePlan(std::initializer_list<const View*> operands, std::uint64_t along);

  std::int64_t count() const { return lines_.numel; }
  std::int64_t length() const { return elements_.numel; }
  /// Neighbouring lines are closer to each other than elements of a line that are `stride` apart.
  bool lines_are_closer_than(std::int64_t stride) const;
  bool lines_are_closer() const { return lines_are_closer_than(elements_.strides[0].back()); }
  /// How many threads should handle `length` elements of a line together.
  static unsigned group_for(std::int64_t length, bool lines_are_closer);

  /// How many chunks of `size` elements a line is cut into.
  std::int64_t chunks(std::int64_t size) const;

  /// The launches that make up all lines: nearly always one. Lines whose elements do not fit into one launch come in
  /// several parts, of which `first_chunk` is the first chunk.
  struct Part {
    Lines lines;
    std::int64_t first_chunk;
  };
  std::vector<Part> parts(unsigned group, std::int64_t chunk) const;
  /// The same for ops that need whole lines; throws Error naming `op` when they do not fit.
  std::vector<Lines> whole_lines(const char* op) const;

 private:
  LoopNest nest(std::uint64_t dims) const;
  bool fits_by_eight(const Lines& lines) const;

  std::uint64_t along_;
  std::array<View, Lines::kMaxOperands> operands_;
  LoopNest lines_, elements_;
};

}  // namespace halfgrad::cuda
