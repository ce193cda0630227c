// Random fills on the CPU. An element's number depends on its position alone, so chunks may run in any order.

#include <cmath>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/cpu/scratch.h"

namespace halfgrad {

namespace {

using cpu::FillKernel;
using cpu::FillKernels;
using cpu::kernels;
using cpu::parallel_for;
using cpu::RandomFill;

constexpr std::int64_t kChunk = 1 << 14;  // a multiple of 4: chunks begin with a new counter

// The next number of type T above or below x.
double neighbour(double x, double towards) { return std::nextafter(x, towards); }
float neighbour(float x, double towards) { return std::nextafter(x, static_cast<float>(towards)); }
half neighbour(half x, double towards) {
  if (static_cast<float>(x) == 0) return half::from_bits(towards > 0 ? 0x0001 : 0x8001);
  const bool grows = signbit(x) == (towards < 0);  // away from zero
  return half::from_bits(static_cast<std::uint16_t>(x.bits() + (grows ? 1 : -1)));
}

// A uniform number in [a, b) is a + u * (b - a), whose last rounding may reach b, or fall below an `a` that
// is no T: in f16 even 1 + u * (2 - 1) is 2 for the largest u. So results are clamped to the smallest T >= a
// and the largest T < b.
template <class T>
void set_limits(RandomFill& fill) {
  T low(fill.a), high(fill.b);
  if (static_cast<double>(low) < fill.a) low = neighbour(low, INFINITY);
  if (static_cast<double>(high) >= fill.b) high = neighbour(high, -INFINITY);
  fill.low = static_cast<double>(low);
  fill.high = static_cast<double>(high);
  if (fill.low > fill.high) fill.low = fill.high = static_cast<double>(T(fill.a));  // there is no T in the range
}

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

  RandomFill fill{.seed = seed, .offset = offset, .a = a, .b = b, .low = 0, .high = 0};
  const FillKernels& fills = kind == Distribution::uniform  ? kernels().random.uniform
                             : kind == Distribution::normal ? kernels().random.normal
                                                            : kernels().random.bernoulli;
  if (y.dtype == f16) {
    set_limits<half>(fill);
    run(fills.f16, fill, y);
  } else if (y.dtype == f32) {
    set_limits<float>(fill);
    run(fills.f32, fill, y);
  } else {
    set_limits<double>(fill);
    run(fills.f64, fill, y);
  }
}

}  // namespace halfgrad
