#include "engine/cuda/line_plan.h"

#include "engine/cuda/elementwise.h"
#include "engine/error.h"

namespace halfgrad::cuda {

namespace {

constexpr std::int64_t kShort = 16;      // elements that a thread handles alone without the others having to wait
constexpr std::int64_t kForWarp = 1024;  // ... and a warp
constexpr std::int64_t kAlone = 512;     // ... and a thread when its neighbours read what lies beside

}  // namespace

Vector vector_of(const View& x) {
  if (!x) return {};
  const bool by_eight = x.strides[0] == 1 && moves_by_eight(x.dtype) &&
                        reinterpret_cast<std::uintptr_t>(x.data) % alignment_of_eight(x.dtype) == 0;
  return {{x.data, x.dtype}, x.strides[0], by_eight};
}

LinePlan::LinePlan(std::initializer_list<const View*> operands, std::uint64_t along)
    : along_(along),
      operands_([&] {
        std::array<View, Lines::kMaxOperands> views;
        std::size_t k = 0;
        for (const View* view : operands) views[k++] = *view;
        return views;
      }()),
      lines_(nest(~along)),
      elements_(nest(along)) {}

// The nest of some dimensions: in the others there is one element. Operands repeat theirs where their size is 1.
LoopNest LinePlan::nest(std::uint64_t dims) const {
  std::array<View, Lines::kMaxOperands> views = operands_;
  Shape shape = operands_[0].shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (View& view : views)
      if (view && view.shape[d] == 1) view.strides[d] = 0;
    if ((dims >> d & 1) == 0) shape[d] = 1;
  }
  for (View& view : views)
    if (view) view.shape = shape;
  static_assert(Lines::kMaxOperands == 5);
  return LoopNest{&views[0], &views[1], &views[2], &views[3], &views[4]};
}

bool LinePlan::lines_are_closer_than(std::int64_t stride) const {
  const std::int64_t between_lines = lines_.strides[0].back();
  return count() > 1 && between_lines != 0 && between_lines < stride;
}

unsigned LinePlan::group_for(std::int64_t length, bool lines_are_closer) {
  if (length <= (lines_are_closer ? kAlone : kShort)) return 1;
  return length <= kForWarp ? 32 : 256;
}

bool LinePlan::fits_by_eight(const Lines& lines) const {
  if (lines.elements.rank != 1) return false;
  for (int k = 0; k < Lines::kMaxOperands; ++k) {
    const View& view = operands_[static_cast<std::size_t>(k)];
    bool has_elements = false;  // along the line, unlike a sum or a mean
    for (std::size_t d = 0; d < view.shape.size(); ++d)
      has_elements = has_elements || ((along_ >> d & 1) != 0 && view.shape[d] != 1);
    if (!view || !has_elements) continue;
    const Array& array = lines.at[k];
    if (lines.elements.stride[k][0] != 1 || !moves_by_eight(array.dtype) ||
        reinterpret_cast<std::uintptr_t>(array.data) % alignment_of_eight(array.dtype) != 0)
      return false;
    for (int d = 0; d < lines.lines.rank; ++d)
      if (lines.lines.size[d].divisor > 1 && lines.lines.stride[k][d] % 8 != 0) return false;
  }
  return true;
}

std::int64_t LinePlan::chunks(std::int64_t size) const {
  std::int64_t count = 0;
  for (const Piece& some_elements : pieces(elements_)) count += (some_elements.nest.numel + size - 1) / size;
  return count;
}

std::vector<LinePlan::Part> LinePlan::parts(unsigned group, std::int64_t chunk) const {
  std::vector<Part> parts;
  if (count() == 0 || length() == 0) return parts;
  for (const Piece& some_lines : pieces(lines_)) {
    std::int64_t first_chunk = 0;
    for (const Piece& some_elements : pieces(elements_)) {
      Part part{{space_of(some_lines), space_of(some_elements), {}, group, false}, first_chunk};
      for (std::size_t k = 0; k < operands_.size(); ++k)
        if (const View& view = operands_[k])
          part.lines.at[k] = {view.at(some_lines.begin[k] + some_elements.begin[k]), view.dtype};
      part.lines.by_eight = fits_by_eight(part.lines);
      parts.push_back(part);
      first_chunk += (some_elements.nest.numel + chunk - 1) / chunk;
    }
  }
  return parts;
}

std::vector<Lines> LinePlan::whole_lines(const char* op) const {
  std::vector<Lines> all;
  for (const Part& part : parts(group_for(length(), lines_are_closer()), length())) {
    check(
        part.lines.elements.numel == length(),
        "{}: a line of {} elements is more than a kernel can count; expected less than 2^31 from its first element to "
        "its last: make a contiguous() copy, split the tensor, or use the device cpu",
        op, length());
    all.push_back(part.lines);
  }
  return all;
}

}  // namespace halfgrad::cuda
