// Random fills on the CPU. An element's number depends on its position alone, so chunks may run in any order.

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"
#include "engine/random_fill.h"

namespace halfgrad {

namespace {

using cpu::FillKernel;
using cpu::FillKernels;
using cpu::kernels;
using cpu::parallel_for;

constexpr std::int64_t kChunk = 1 << 14;  // a multiple of 4: chunks begin with a new counter

template <class T>
void run(FillKernel<T> kernel, const RandomFill& fill, const View& y) {
  T* data = y.as<T>();
  parallel_for(y.numel(), kChunk,
               [&](std::int64_t begin, std::int64_t end) { kernel(fill, begin, end, data + begin); });
}

}  // namespace

void CpuBackend::random(Distribution kind, const View& y, double a, double b, std::uint64_t seed,
                        std::uint64_t offset) {
  // Elements are numbered in row-major order: anything but a row-major float tensor is filled by way of one.
  const bool direct = is_floating(y.dtype) && y.strides == contiguous_strides(y.shape);
  if (!direct) {
    const DType dtype = is_floating(y.dtype) ? y.dtype : f32;
    const cpu::Scratch scratch(static_cast<std::size_t>(y.numel()) * size_of(dtype));
    const View dense{scratch.as<void>(), dtype, y.shape, contiguous_strides(y.shape)};
    random(kind, dense, a, b, seed, offset);
    return copy(y, dense);
  }

  const RandomFill fill = random_fill(y.dtype, a, b, seed, offset);
  const FillKernels& fills = kind == Distribution::uniform  ? kernels().random.uniform
                             : kind == Distribution::normal ? kernels().random.normal
                                                            : kernels().random.bernoulli;
  if (y.dtype == f16)
    run(fills.f16, fill, y);
  else if (y.dtype == f32)
    run(fills.f32, fill, y);
  else
    run(fills.f64, fill, y);
}

}  // namespace halfgrad
