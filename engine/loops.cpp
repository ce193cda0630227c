#include "engine/loops.h"

#include <utility>

namespace halfgrad {

LoopNest::LoopNest(std::initializer_list<const View*> operands) {
  const View& out = **operands.begin();
  numel = out.numel();

  // The output's dimensions, largest stride first; equal ones stay as they are. Sorted by insertion: they are few.
  Shape order;
  for (int d = 0; d < out.shape.rank(); ++d) {
    if (out.shape[static_cast<std::size_t>(d)] == 1) continue;
    order.push_back(d);
    const auto smaller = [&](std::int64_t a) {
      return out.strides[static_cast<std::size_t>(a)] < out.strides[static_cast<std::size_t>(d)];
    };
    for (std::size_t i = order.size() - 1; i > 0 && smaller(order[i - 1]); --i) std::swap(order[i - 1], order[i]);
  }

  const auto stride_of = [](const View& x, std::int64_t d) { return x ? x.strides[static_cast<std::size_t>(d)] : 0; };
  for (std::int64_t d : order) {
    const std::int64_t size = out.shape[static_cast<std::size_t>(d)];
    bool merges = !shape.empty();
    std::size_t i = 0;
    for (const View* x : operands) merges = merges && strides[i++].back() == stride_of(*x, d) * size;
    if (merges)
      shape[shape.size() - 1] *= size;
    else
      shape.push_back(size);
    i = 0;
    for (const View* x : operands) {
      Strides& s = strides[i++];
      if (merges)
        s[s.size() - 1] = stride_of(*x, d);
      else
        s.push_back(stride_of(*x, d));
    }
  }
  if (shape.empty()) {
    shape.push_back(1);
    for (std::size_t i = 0; i < operands.size(); ++i) strides[i].push_back(1);
  }
}

}  // namespace halfgrad
