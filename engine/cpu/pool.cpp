// Pooling on the CPU: where each window lies, and who computes what.

#include <algorithm>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad {
namespace {

using cpu::PoolFunctions;
using cpu::PoolImage;
using cpu::PoolJob;
using cpu::PoolSpan;

constexpr std::int64_t kChunk = 1 << 15;  // numbers that are worth a thread's while

const PoolFunctions& functions_for(DType dtype) {
  const cpu::PoolKernels& pool = cpu::kernels().pool;
  return dtype == f16 ? pool.f16 : dtype == f32 ? pool.f32 : pool.f64;
}

// The window of each output position along one axis (0: rows, 1: columns).
std::vector<PoolSpan> spans(const PoolGeometry& g, int axis, std::int64_t in, std::int64_t out) {
  std::vector<PoolSpan> result;
  for (std::int64_t i = 0; i < out; ++i) {
    if (g.adaptive) {
      const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
      result.push_back({begin, end, 1, end - begin});
      continue;
    }
    const std::int64_t step = g.dilation[axis];
    const std::int64_t start = i * g.stride[axis] - g.padding[axis], stop = start + step * (g.kernel[axis] - 1) + 1;
    const std::int64_t begin = start >= 0 ? start : start + (-start + step - 1) / step * step;
    const std::int64_t end = std::min(stop, in);
    result.push_back({begin, end, step, g.count_include_pad ? g.kernel[axis] : (end - begin + step - 1) / step});
  }
  return result;
}

// The part of v that begins with this image, channel and row.
PoolImage part(const View& v, std::int64_t image, std::int64_t channel, std::int64_t row) {
  if (!v) return {};
  const std::int64_t offset = image * v.strides[0] + channel * v.strides[1] + row * v.strides[2];
  return {v.as<char>() + offset * static_cast<std::int64_t>(size_of(v.dtype)), v.strides[1], v.strides[2],
          v.strides[3]};
}

// y from x: each row of windows by itself.
void forward(void (*kernel)(const PoolJob&), const View& y, const View& index, const View& x, const PoolGeometry& g) {
  const auto rows = spans(g, 0, x.shape[2], y.shape[2]), columns = spans(g, 1, x.shape[3], y.shape[3]);
  const std::int64_t channels = y.shape[1], height = y.shape[2], width = y.shape[3];
  cpu::parallel_for(y.shape[0] * height, kChunk / (channels * width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / height, row = i % height;
      kernel({channels, x.shape[2], x.shape[3], 1, width, &rows[static_cast<std::size_t>(row)], columns.data(),
              part(x, n, 0, 0), part(y, n, 0, row), part(index, n, 0, row), nullptr});
    }
  });
}

// dx from dy: some channels of an image by themselves, as many as have room in the L2 cache.
void backward(void (*kernel)(const PoolJob&), const View& dx, const View& dy, const View& index,
              const std::vector<PoolSpan>& rows, const std::vector<PoolSpan>& columns) {
  const std::int64_t channels = dx.shape[1], plane = dx.shape[2] * dx.shape[3];
  const std::int64_t block = std::clamp<std::int64_t>((1 << 18) / plane, 16, std::max<std::int64_t>(channels, 16));
  const std::int64_t blocks = (channels + block - 1) / block;
  cpu::parallel_for(dx.shape[0] * blocks, kChunk / (plane * block), [&](std::int64_t begin, std::int64_t end) {
    const cpu::Scratch sums(static_cast<std::size_t>(plane * block) * (dx.dtype == f64 ? 8 : 4));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / blocks, channel = i % blocks * block;
      kernel({std::min(block, channels - channel), dx.shape[2], dx.shape[3], dy.shape[2], dy.shape[3], rows.data(),
              columns.data(), part(dx, n, channel, 0), part(dy, n, channel, 0), part(index, n, channel, 0),
              sums.as<void>()});
    }
  });
}

}  // namespace

void CpuBackend::max_pool2d(const View& y, const View& index, const View& x, const PoolGeometry& g) {
  forward(functions_for(y.dtype).max, y, index, x, g);
}

void CpuBackend::max_pool2d_backward(const View& dx, const View& dy, const View& index) {
  backward(functions_for(dx.dtype).max_backward, dx, dy, index, {}, {});
}

void CpuBackend::avg_pool2d(const View& y, const View& x, const PoolGeometry& g) {
  forward(functions_for(y.dtype).average, y, View{}, x, g);
}

void CpuBackend::avg_pool2d_backward(const View& dx, const View& dy, const PoolGeometry& g) {
  backward(functions_for(dx.dtype).average_backward, dx, dy, View{}, spans(g, 0, dx.shape[2], dy.shape[2]),
           spans(g, 1, dx.shape[3], dy.shape[3]));
}

}  // namespace halfgrad
