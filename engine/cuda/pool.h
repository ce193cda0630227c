#pragma once
// What the host says to the kernels of pooling.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/cuda/space.h"
#include "engine/dtype.h"

namespace halfgrad::cuda {

/// [N, C, H, W] with its strides.
struct Images {
  void* data = nullptr;
  std::int64_t image = 0, channel = 0, row = 0, column = 0;
};

/// The elements of [N, C, H, W], numbered in the order in which threads take them: neighbours in memory follow each other.
/// Within a plane that is row-major in any case.
struct Elements {
  std::uint32_t count = 0;
  bool channels_last = false;
  Divisor channels, height, width;

  struct Index {
    std::uint32_t n, c, h, w;
  };
  constexpr Index index(std::uint32_t i) const {
    const auto split = [&i](const Divisor& by) {
      const std::uint32_t rest = by.quotient(i), index = i - rest * by.divisor;
      i = rest;
      return index;
    };
    Index at{};
    if (channels_last) at.c = split(channels);
    at.w = split(width);
    at.h = split(height);
    if (!channels_last) at.c = split(channels);
    at.n = i;
    return at;
  }
  constexpr std::uint32_t number(const Index& at) const {
    const std::uint32_t c = channels.divisor, h = height.divisor, w = width.divisor;
    return channels_last ? ((at.n * h + at.h) * w + at.w) * c + at.c : ((at.n * c + at.c) * h + at.h) * w + at.w;
  }
};

/// The windows along one axis: engine/backend.h's PoolGeometry. Kernels count in 32 bits, which hold the size with its
/// padding and with a window, and, if it is adaptive, (in + 1) * (out + 1).
struct PoolAxis {
  std::int32_t in, out, kernel, stride, padding, dilation;
  bool count_include_pad, adaptive;
};

struct Pool {
  DType dtype = f32;
  Images x, y;   // the large and the pooled side, also when they are gradients
  Images index;  // of max: i32; it may have no data in the forward pass
  Elements inputs, outputs;
  PoolAxis rows, columns;  // not for max_pool_backward
};

void max_pool(const Pool&, const Queue&);
/// `memory`: room for inputs.count + outputs.count numbers of 32 bits.
void max_pool_backward(const Pool&, void* memory, const Queue&);
void average_pool(const Pool&, const Queue&);
void average_pool_backward(const Pool&, const Queue&);

}  // namespace halfgrad::cuda
