#pragma once
// The common form of a convolution and of its input gradient: every output pixel is a sum over taps of a
// source pixel times a matrix of weights.

#include "engine/activation.h"
#include "engine/cpu/conv_plan.h"

namespace halfgrad::cpu {

template <class T>
struct Correlation {
  Images<const T> source;
  Images<T> target;  // where the outputs of `rows` x `columns` go
  const T* w = nullptr;
  std::ptrdiff_t w_group = 0, w_input = 0, w_output = 0, w_row = 0, w_column = 0;  // strides
  std::int64_t groups = 1;
  Axis rows = {}, columns = {};
  const float* bias = nullptr;                 // of all output channels, or null
  float lowest = lowest_of(Activation::none);  // results less than that become it
};

/// Computes it, for T = float and the bits of halves, std::uint16_t.
template <class T>
void correlate(Correlation<T> problem);

}  // namespace halfgrad::cpu
