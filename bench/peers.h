#pragma once
// What the benchmarks compare halfgrad with: the same work as one would write it without halfgrad.

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/convolution.h"
#include "bench/timing.h"
#include "engine/cpu/parallel.h"
#include "engine/half.h"

namespace bench::peers {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Lets Eigen's matrix products use as many threads as halfgrad does, where it was compiled with OpenMP.
inline void use_threads() { Eigen::setNbThreads(halfgrad::cpu::num_threads()); }

/// The speed of memory: a plain copy that moves so many bytes, half of them in and half of them out.
inline Candidate copy(double bytes) {
  constexpr std::int64_t kChunk = 1 << 17;
  const auto n = static_cast<std::int64_t>(bytes / 2);
  const auto memory = std::make_shared<std::vector<char>>(static_cast<std::size_t>(2 * n));
  return [=] {
    char *from = memory->data(), *to = from + n;
    halfgrad::cpu::parallel_for(n, kChunk, [=](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    });
  };
}

/// A pass that changes memory in place and moves so many bytes: each number is read and written back. It is faster than
/// a copy, for which most processors read the target, too, before they write it.
inline Candidate rewrite(double bytes) {
  constexpr std::int64_t kChunk = 1 << 15;
  const auto n = static_cast<std::int64_t>(bytes / 2 / sizeof(float));
  const auto memory = std::make_shared<std::vector<float>>(static_cast<std::size_t>(n));
  return [=] {
    halfgrad::cpu::parallel_for(n, kChunk, [x = memory->data()](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) x[i] = -x[i];
    });
  };
}

// --- matrix products -------------------------------------------------------------------------------------------------

/// c [m, n] = a [m, k] x b [k, n], all row-major; a transposed operand lies in memory as [k, m] or [n, k].
struct Product {
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;

  double gflop() const { return 2e-9 * static_cast<double>(m * n * k); }
};

/// With Eigen.
inline void multiply(const Product& p, float* c, const float* a, const float* b) {
  using Map = Eigen::Map<const Matrix>;
  Eigen::Map<Matrix> out(c, p.m, p.n);
  if (p.a_transposed) {
    out.noalias() = Map(a, p.k, p.m).transpose() * Map(b, p.k, p.n);
  } else if (p.b_transposed) {
    out.noalias() = Map(a, p.m, p.k) * Map(b, p.n, p.k).transpose();
  } else {
    out.noalias() = Map(a, p.m, p.k) * Map(b, p.k, p.n);
  }
}

/// What one does without kernels for half: convert both operands, multiply in f32, convert back.
class HalfProduct {
 public:
  explicit HalfProduct(const Product& product) : p_(product), a_(p_.m * p_.k), b_(p_.k * p_.n), c_(p_.m * p_.n) {}

  void operator()(halfgrad::half* c, const halfgrad::half* a, const halfgrad::half* b) {
    using Halves = Eigen::Array<Eigen::half, Eigen::Dynamic, 1>;
    using Map = Eigen::Map<const Halves>;
    a_ = Map(reinterpret_cast<const Eigen::half*>(a), a_.size()).cast<float>();
    b_ = Map(reinterpret_cast<const Eigen::half*>(b), b_.size()).cast<float>();
    multiply(p_, c_.data(), a_.data(), b_.data());
    Eigen::Map<Halves>(reinterpret_cast<Eigen::half*>(c), c_.size()) = c_.cast<Eigen::half>();
  }

 private:
  Product p_;
  Eigen::ArrayXf a_, b_, c_;
};

// --- convolutions ----------------------------------------------------------------------------------------------------

/// Unfolds one NCHW image at a time into a matrix, the columns of which are the windows, and multiplies with Eigen.
class UnfoldedConvolution {
 public:
  explicit UnfoldedConvolution(const Convolution& convolution)
      : c_(convolution),
        x_(Matrix::Random(c_.batch * c_.inputs, c_.size * c_.size)),
        y_(Matrix::Random(c_.batch * c_.outputs, c_.output_size() * c_.output_size())),
        weight_(Matrix::Random(c_.outputs, depth())),
        windows_(Matrix::Zero(c_.inputs * c_.filter * c_.filter, y_.cols())),
        window_gradients_(windows_) {}

  void forward() {
    for (std::int64_t n = 0; n < c_.batch; ++n) {
      unfold(n);
      for_each_group([&](std::int64_t first_output, std::int64_t first_window) {
        y_.middleRows(n * c_.outputs + first_output, outputs()).noalias() =
            weight_.middleRows(first_output, outputs()) * windows_.middleRows(first_window, depth());
      });
    }
  }

  void input_gradient() {
    x_.setZero();
    for (std::int64_t n = 0; n < c_.batch; ++n) {
      for_each_group([&](std::int64_t first_output, std::int64_t first_window) {
        window_gradients_.middleRows(first_window, depth()).noalias() =
            weight_.middleRows(first_output, outputs()).transpose() *
            y_.middleRows(n * c_.outputs + first_output, outputs());
      });
      float* image = x_.row(n * c_.inputs).data();
      for_each_run([&](std::int64_t window, std::int64_t position, std::int64_t length) {
        const float* from = window_gradients_.data() + window;
        for (std::int64_t i = 0; i < length; ++i) image[position + i * c_.stride] += from[i];
      });
    }
  }

  void weight_gradient() {
    weight_.setZero();
    for (std::int64_t n = 0; n < c_.batch; ++n) {
      unfold(n);
      for_each_group([&](std::int64_t first_output, std::int64_t first_window) {
        weight_.middleRows(first_output, outputs()).noalias() +=
            y_.middleRows(n * c_.outputs + first_output, outputs()) *
            windows_.middleRows(first_window, depth()).transpose();
      });
    }
  }

 private:
  // Of one group.
  std::int64_t outputs() const { return c_.outputs / c_.groups; }
  std::int64_t depth() const { return c_.inputs / c_.groups * c_.filter * c_.filter; }

  template <class F>
  void for_each_group(F f) const {
    for (std::int64_t g = 0; g < c_.groups; ++g) f(g * outputs(), g * depth());
  }

  // f(offset in windows_, offset in the image, length): where windows_ reads the image row by row, every stride-th
  // element. What it does not reach is padding.
  template <class F>
  void for_each_run(F f) const {
    const std::int64_t out = c_.output_size();
    for (std::int64_t k = 0; k < windows_.rows(); ++k) {
      const std::int64_t plane = k / (c_.filter * c_.filter), r = k / c_.filter % c_.filter - c_.padding;
      const std::int64_t s = k % c_.filter - c_.padding;
      const std::int64_t first = std::max<std::int64_t>(0, (c_.stride - 1 - s) / c_.stride);
      const std::int64_t last = std::min(out, (c_.size - 1 - s) / c_.stride + 1);
      for (std::int64_t i = 0; i < out; ++i) {
        const std::int64_t h = i * c_.stride + r;
        if (h < 0 || h >= c_.size) continue;
        f((k * out + i) * out + first, (plane * c_.size + h) * c_.size + first * c_.stride + s, last - first);
      }
    }
  }

  void unfold(std::int64_t n) {
    const float* image = x_.row(n * c_.inputs).data();
    for_each_run([&](std::int64_t window, std::int64_t position, std::int64_t length) {
      float* to = windows_.data() + window;
      if (c_.stride == 1) {
        std::copy_n(image + position, length, to);
      } else {
        for (std::int64_t i = 0; i < length; ++i) to[i] = image[position + i * c_.stride];
      }
    });
  }

  Convolution c_;
  Matrix x_, y_;                       // [N * C, H * W], [N * O, OH * OW]
  Matrix weight_;                      // [O, C / groups * R * S]
  Matrix windows_, window_gradients_;  // [C * R * S, OH * OW]; padding is 0 from the start
};

}  // namespace bench::peers
