#pragma once
// What the numbers of a random fill are made of, for the kernels of every device. philox.h says which random bits belong
// to an element; here they become a number of a distribution. All devices give the same bits.

#include <cstdint>

namespace halfgrad {

enum class DType : std::uint8_t;  // dtype.h, which the CPU's kernels must not include

/// A fill whose elements all come from one distribution.
struct RandomFill {
  std::uint64_t seed, offset;  ///< element i: counter offset + i/4, lane i%4
  double a, b;                 ///< uniform: range; normal: mean and deviation; bernoulli: b with probability a, else 0
  double low, high;            ///< uniform: results are clamped to these
};

/// A fill of a float dtype. A uniform number in [a, b) is a + u * (b - a), whose last rounding may reach b, or fall below
/// an `a` that the dtype does not have: in f16 even 1 + u * (2 - 1) is 2 for the largest u. So results are clamped to the
/// dtype's smallest number >= a and its largest < b.
RandomFill random_fill(DType dtype, double a, double b, std::uint64_t seed, std::uint64_t offset);

/// What dropout multiplies by: 1/(1 - p), or 0 with probability p.
RandomFill dropout_fill(double p, std::uint64_t seed, std::uint64_t offset);

// The distributions, computed in C: float (also for halves), or double for f64. Always inlined, because the CPU's kernels
// are compiled once per instruction set.

template <class C>
class UniformNumbers {
 public:
  [[gnu::always_inline]] explicit constexpr UniformNumbers(const RandomFill& fill)
      : a_(static_cast<C>(fill.a)),
        range_(static_cast<C>(fill.b - fill.a)),
        low_(static_cast<C>(fill.low)),
        high_(static_cast<C>(fill.high)) {}
  /// From a uniform number in [0, 1).
  [[gnu::always_inline]] constexpr C operator()(C unit) const {
    C x = a_ + unit * range_;
    x = x < low_ ? low_ : x;
    return x > high_ ? high_ : x;
  }

 private:
  C a_, range_, low_, high_;
};

template <class C>
class NormalNumbers {
 public:
  [[gnu::always_inline]] explicit constexpr NormalNumbers(const RandomFill& fill)
      : mean_(static_cast<C>(fill.a)), deviation_(static_cast<C>(fill.b)) {}
  /// From one with mean 0 and deviation 1.
  [[gnu::always_inline]] constexpr C operator()(float standard) const {
    return mean_ + deviation_ * static_cast<C>(standard);
  }

 private:
  C mean_, deviation_;
};

template <class C>
class BernoulliNumbers {
 public:
  [[gnu::always_inline]] explicit constexpr BernoulliNumbers(const RandomFill& fill)
      : threshold_(fill.a * 0x1p32), number_(static_cast<C>(fill.b)) {}
  /// Of the 2^32 equally likely 32-bit numbers, those below the threshold count.
  [[gnu::always_inline]] constexpr C operator()(std::uint32_t bits) const {
    return static_cast<double>(bits) < threshold_ ? number_ : C(0);
  }

 private:
  double threshold_;
  C number_;
};

}  // namespace halfgrad
