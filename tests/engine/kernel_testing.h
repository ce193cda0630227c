#pragma once
// What the tests of CPU kernels share: strided arrays with guarded gaps, error bounds, and a loop over the
// instruction sets of this machine.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/backend.h"
#include "engine/cpu/kernels.h"

namespace halfgrad::testing {

/// A strided array of f16, f32 or f64. `order` lists the dimensions from the outermost in memory to the
/// innermost (default: row-major); `gap` elements are left unused after each run of the innermost dimension,
/// and 64 at both ends.
class Array {
 public:
  Array(DType dtype, const Shape& shape, std::vector<int> order = {}, std::int64_t gap = 0) {
    if (order.empty())
      for (int d = 0; d < shape.rank(); ++d) order.push_back(d);
    Strides strides(shape.size(), 0);
    std::int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      strides[order[i]] = stride;
      stride = stride * shape[order[i]] + (i == shape.rank() - 1 ? gap : 0);
    }
    bytes_.assign((stride + 2 * kGuard) * size_of(dtype), kFill);
    view = {bytes_.data() + kGuard * size_of(dtype), dtype, shape, strides};
  }
  Array(const Array& other) : view(other.view), bytes_(other.bytes_) { rebase(other); }

  View view;

  double get(std::int64_t offset) const {
    switch (view.dtype) {
      case f16:
        return view.as<half>()[offset];
      case f64:
        return view.as<double>()[offset];
      default:
        return view.as<float>()[offset];
    }
  }
  void set(std::int64_t offset, double x) {
    switch (view.dtype) {
      case f16:
        view.as<half>()[offset] = half(x);
        break;
      case f64:
        view.as<double>()[offset] = x;
        break;
      default:
        view.as<float>()[offset] = static_cast<float>(x);
    }
  }
  /// Calls f(offset) for every element, in row-major order of the indices.
  template <class F>
  void for_each(F&& f) const {
    if (view.numel() == 0) return;
    std::vector<std::int64_t> index(view.shape.size(), 0);
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
      f(offset);
      for (int d = view.shape.rank() - 1; d >= 0 && ++index[d] == view.shape[d]; --d) index[d] = 0;
    }
  }
  Array& fill(unsigned seed, double scale = 1) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-scale, scale);
    for_each([&](std::int64_t offset) { set(offset, uniform(generator)); });
    return *this;
  }
  /// Whether all memory between and around the elements is as it was.
  bool gaps_untouched() const {
    std::vector<unsigned char> rest = bytes_;
    const std::size_t size = size_of(view.dtype);
    for_each([&](std::int64_t offset) { std::memset(rest.data() + (offset + kGuard) * size, kFill, size); });
    return std::all_of(rest.begin(), rest.end(), [](unsigned char byte) { return byte == kFill; });
  }
  bool same_bits(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr std::int64_t kGuard = 64;
  static constexpr unsigned char kFill = 0xFF;  // a NaN in every float type
  void rebase(const Array&) { view.data = bytes_.data() + kGuard * size_of(view.dtype); }
  std::vector<unsigned char> bytes_;
};

/// How far a result may be from the exact sum of `terms` products, each of which is rounded and summed in any
/// order.
///
/// With u = 2^-24 the unit roundoff of f32, every rounding multiplies what it rounds by 1 + d, |d| <= u. A
/// product is rounded once when it is formed (not even that if fused) and once more by each addition on its
/// way to the result, and there are at most terms - 1 additions. So it arrives multiplied by at most (1 +
/// u)^terms, and the error of the sum is at most gamma * magnitude, where
///     gamma = terms * u / (1 - terms * u)      and      magnitude = the sum of the absolute values of all
///     products.
/// A bias is one more term. Results in f16 are rounded once more, by at most half a unit in the last place,
/// which is 2^-11 of the value or, for subnormal halves, 2^-25. For f64 u is 2^-53. The reference is computed
/// in double (long double for f64) and its own error, 2^-29 (2^-11) times smaller, is absorbed by one more
/// term.
inline double error_bound(DType dtype, std::int64_t terms, double magnitude, double value) {
  const double u = dtype == f64 ? 0x1p-53 : 0x1p-24;
  const double steps = static_cast<double>(terms + 1) * u;
  const double accumulated = steps / (1 - steps) * magnitude;
  if (dtype != f16) return accumulated;
  return accumulated + std::max(0x1p-11 * (std::abs(value) + accumulated), 0x1p-25);
}

/// Runs f(name) once with the kernels of each instruction set that this machine has.
template <class F>
void for_each_isa(F&& f) {
  const cpu::Kernels& usual = cpu::kernels();
  for (const char* const* isa = cpu::kIsaNames; *isa != nullptr; ++isa) {
    const cpu::Kernels* table = cpu::kernels_for(*isa);
    if (table == nullptr) continue;
    cpu::use_kernels(*table);
    f(*isa);
  }
  cpu::use_kernels(usual);
}

}  // namespace halfgrad::testing
