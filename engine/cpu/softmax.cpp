// Softmax and log_softmax on the CPU: the lines along a dimension are handled in bundles of neighbours.

#include <array>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad {
namespace {

using cpu::LineStrides;

constexpr std::int64_t kBundleElements = 32 * 1024;  // of a bundle: it stays in the second-level cache
constexpr std::int64_t kMaxLines = 64;

// f(pointers, strides, lines, buffer) for bundles of lines along `dim`, in parallel. `views` have one shape
// and dtype; the layout of the last decides which lines are neighbours. The buffer holds 2 * lines * n
// numbers.
template <std::size_t kViews, class F>
void for_each_bundle(const std::array<const View*, kViews>& views, int dim, F f) {
  const View& x = *views.back();
  const auto rank = static_cast<std::size_t>(x.shape.rank()), d = static_cast<std::size_t>(dim);
  const std::int64_t n = x.shape[d];
  if (x.numel() == 0) return;

  std::size_t side = d;  // the dimension of the nearest neighbours; d itself when there are none
  for (std::size_t i = 0; i < rank; ++i)
    if (i != d && x.shape[i] > 1 && (side == d || x.strides[i] <= x.strides[side])) side = i;
  const std::int64_t neighbours = side == d ? 1 : x.shape[side];
  const std::int64_t lines = std::clamp<std::int64_t>(kBundleElements / n, 1, std::min(kMaxLines, neighbours));
  const std::int64_t bundles = (neighbours + lines - 1) / lines;
  Shape outer = x.shape;
  outer[d] = 1;
  outer[side] = 1;

  const std::size_t number_size = x.dtype == f64 ? sizeof(double) : sizeof(float);
  cpu::parallel_for(
      outer.numel() * bundles, std::max<std::int64_t>(1, 2 * kBundleElements / (lines * n)),
      [&](std::int64_t begin, std::int64_t end) {
        const cpu::Scratch buffer(static_cast<std::size_t>(2 * lines * (n + cpu::kLinePadding)) * number_size);
        for (std::int64_t bundle = begin; bundle < end; ++bundle) {
          const std::int64_t first = bundle % bundles * lines;
          std::array<void*, kViews> pointers;
          std::array<LineStrides, kViews> strides;
          for (std::size_t v = 0; v < kViews; ++v) {
            const View& view = *views[v];
            strides[v] = {side == d ? 0 : view.strides[side], view.strides[d]};
            std::int64_t offset = first * strides[v].line, rest = bundle / bundles;
            for (std::size_t i = rank; i-- > 0; rest /= outer[i]) offset += rest % outer[i] * view.strides[i];
            pointers[v] = view.at(offset);
          }
          f(pointers, strides, std::min(lines, neighbours - first), n, buffer.as<void>());
        }
      });
}

}  // namespace

void CpuBackend::softmax(const View& y, const View& x, int dim, bool log) {
  const auto kernel = cpu::kernels().softmax.forward[static_cast<int>(x.dtype)];
  for_each_bundle<2>({&y, &x}, dim, [&](auto& p, auto& strides, std::int64_t lines, std::int64_t n, void* buffer) {
    kernel(p[0], p[1], lines, n, strides[0], strides[1], log, buffer);
  });
}

void CpuBackend::softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) {
  const auto kernel = cpu::kernels().softmax.backward[static_cast<int>(y.dtype)];
  for_each_bundle<3>({&dx, &dy, &y}, dim,
                     [&](auto& p, auto& strides, std::int64_t lines, std::int64_t n, void* buffer) {
                       kernel(p[0], p[1], p[2], lines, n, strides[0], strides[1], strides[2], log, buffer);
                     });
}

}  // namespace halfgrad
