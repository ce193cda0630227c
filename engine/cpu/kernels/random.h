#pragma once
// Random numbers into dense memory; see engine/philox.h for how an element finds its own.

#include <cstdint>

#include "engine/random_fill.h"

namespace halfgrad::cpu {

/// Elements [begin, end) of the fill to y[0], y[1], ...; begin is a multiple of 4.
template <class T>
using FillKernel = void (*)(const RandomFill&, std::int64_t begin, std::int64_t end, T* y);

/// The same distribution in each type; the bits of halfs are std::uint16_t. f16 is computed in f32 and
/// rounded once.
struct FillKernels {
  FillKernel<std::uint16_t> f16;
  FillKernel<float> f32;
  FillKernel<double> f64;
};

/// y = x * the fill's numbers, for elements [begin, end), of which x[0] and y[0] are the first. begin is a multiple of 4;
/// y may be x.
template <class T>
using MultiplyKernel = void (*)(const RandomFill&, std::int64_t begin, std::int64_t end, T* y, const T* x);

struct MultiplyKernels {
  MultiplyKernel<std::uint16_t> f16;
  MultiplyKernel<float> f32;
  MultiplyKernel<double> f64;
};

struct RandomKernels {
  FillKernels uniform, normal, bernoulli;
  MultiplyKernels multiply_bernoulli;
};

}  // namespace halfgrad::cpu
