// Softmax, log_softmax and cross entropy on the CPU: the lines along a dimension are handled in bundles of neighbours.

#include <array>
#include <tuple>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad {
namespace {

using cpu::Lines;

constexpr std::int64_t kBundleElements = 32 * 1024;  // of a bundle: it stays in the second-level cache
constexpr std::int64_t kMaxLines = 64;

// f(operands, lines, n, buffer) for bundles of lines along `dim`, in parallel. `views` have one shape, and may be absent; the
// layout of the last decides which lines are neighbours. The buffer holds 2 * lines * n numbers of its arithmetic.
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
          std::array<Lines, kViews> operands;
          for (std::size_t v = 0; v < kViews; ++v) {
            const View& view = *views[v];
            if (!view) continue;
            const std::int64_t between = side == d ? 0 : view.strides[side];
            std::int64_t offset = first * between, rest = bundle / bundles;
            for (std::size_t i = rank; i-- > 0; rest /= outer[i]) offset += rest % outer[i] * view.strides[i];
            operands[v] = {view.at(offset), between, view.strides[d]};
          }
          f(operands, std::min(lines, neighbours - first), n, buffer.as<void>());
        }
      });
}

// A number for each position, as one for all classes.
View for_each_class(View view, const Shape& shape) {
  if (!view) return view;
  view.shape = shape;
  view.strides.insert(1, 0);
  return view;
}

double sum_of(const View& weight) {
  double sum = 0;
  for (std::int64_t c = 0; c < weight.numel(); ++c)
    sum += weight.dtype == f64 ? weight.as<double>()[c] : weight.as<float>()[c];
  return sum;
}

// What the lines of cross entropy have in common.
cpu::CrossEntropyLines lines_with(const CrossEntropyTerms& terms, std::int64_t classes) {
  cpu::CrossEntropyLines o;
  o.weight = terms.weight.data;
  o.smoothing = terms.label_smoothing;
  if (o.smoothing > 0) o.weight_sum = terms.weight ? sum_of(terms.weight) : static_cast<double>(classes);
  o.ignore_index = terms.ignore_index;
  return o;
}

}  // namespace

void CpuBackend::softmax(const View& y, const View& x, int dim, bool log) {
  const auto kernel = cpu::kernels().softmax.forward[static_cast<int>(x.dtype)];
  for_each_bundle<2>({&y, &x}, dim, [&](auto& operands, std::int64_t lines, std::int64_t n, void* buffer) {
    kernel(operands[0], operands[1], lines, n, log, buffer);
  });
}

void CpuBackend::softmax_backward(const View& dx, const View& dy, const View& y, int dim, bool log) {
  const auto kernel = cpu::kernels().softmax.backward[static_cast<int>(y.dtype)];
  for_each_bundle<3>({&dx, &dy, &y}, dim, [&](auto& operands, std::int64_t lines, std::int64_t n, void* buffer) {
    kernel(operands[0], operands[1], operands[2], lines, n, log, buffer);
  });
}

void CpuBackend::cross_entropy(const View& loss, const View& share, const View& most, const View& log_sum,
                               const View& x, const View& target, const CrossEntropyTerms& terms) {
  const auto kernel = cpu::kernels().softmax.cross_entropy[static_cast<int>(x.dtype)];
  const cpu::CrossEntropyLines common = lines_with(terms, x.shape[1]);
  const View l = for_each_class(loss, x.shape), s = for_each_class(share, x.shape), m = for_each_class(most, x.shape),
             g = for_each_class(log_sum, x.shape), t = for_each_class(target, x.shape);
  for_each_bundle<6>({&l, &s, &m, &g, &t, &x}, 1,
                     [&](auto& operands, std::int64_t lines, std::int64_t n, void* buffer) {
                       cpu::CrossEntropyLines o = common;
                       std::tie(o.loss, o.share, o.most, o.log_sum, o.target, o.x) = std::tuple_cat(operands);
                       kernel(o, lines, n, buffer);
                     });
}

void CpuBackend::cross_entropy_backward(const View& dx, const View& dy, const View& divisor, const View& most,
                                        const View& log_sum, const View& x, const View& target,
                                        const CrossEntropyTerms& terms) {
  const auto kernel = cpu::kernels().softmax.cross_entropy_backward[static_cast<int>(x.dtype)];
  cpu::CrossEntropyLines common = lines_with(terms, x.shape[1]);
  common.divisor = divisor.data;
  const View d = for_each_class(dy, x.shape), m = for_each_class(most, x.shape), g = for_each_class(log_sum, x.shape),
             t = for_each_class(target, x.shape);
  for_each_bundle<6>({&dx, &d, &m, &g, &t, &x}, 1,
                     [&](auto& operands, std::int64_t lines, std::int64_t n, void* buffer) {
                       cpu::CrossEntropyLines o = common;
                       std::tie(o.dx, o.dy, o.most, o.log_sum, o.target, o.x) = std::tuple_cat(operands);
                       kernel(o, lines, n, buffer);
                     });
}

}  // namespace halfgrad
