#include "engine/cpu/kernels/softmax.h"

#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/lanes.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

HALFGRAD_INLINE vfloat exp(vfloat x) { return math::exp(Floats(x)).lanes; }
HALFGRAD_INLINE double exp(double x) { return math::exp(x); }

// Lines that lie side by side in memory are read together, element by element: each cache line is touched
// once.
template <class T>
void load_lines(Number<T>* buffer, const T* x, std::int64_t lines, std::int64_t n, LineStrides s) {
  if (s.step == 1 || lines == 1) {
    for (std::int64_t l = 0; l < lines; ++l) load_line(buffer + l * (n + kLinePadding), x + l * s.line, n, s.step);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t l = 0; l < lines; ++l) buffer[l * (n + kLinePadding) + i] = number(x[l * s.line + i * s.step]);
  }
}

template <class T>
void store_lines(T* y, const Number<T>* buffer, std::int64_t lines, std::int64_t n, LineStrides s) {
  if (s.step == 1 || lines == 1) {
    for (std::int64_t l = 0; l < lines; ++l) store_line(y + l * s.line, buffer + l * (n + kLinePadding), n, s.step);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t l = 0; l < lines; ++l) assign(y[l * s.line + i * s.step], buffer[l * (n + kLinePadding) + i]);
  }
}

// The largest number of a line, or -inf. A NaN is skipped.
template <class T>
Number<T> largest(const T* x, std::int64_t n) {
  constexpr int kVectors = 4;  // at once, since each comparison waits for the one before
  Vector<T> most[kVectors];
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { most[v] = spread<T>(-__builtin_inff()); });
  const auto take = [&](auto v, const T* p) HALFGRAD_LAMBDA {
    const Vector<T> numbers = load(p);
    most[v] = numbers > most[v] ? numbers : most[v];
  };
  std::int64_t i = 0;
  for (; i + kVectors * lanes_of<T> <= n; i += kVectors * lanes_of<T>)
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { take(v, x + i + v * lanes_of<T>); });
  for (; i + lanes_of<T> <= n; i += lanes_of<T>) take(Index<0>{}, x + i);
  Number<T> lanes[kVectors * lanes_of<T>];
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { store(lanes + v * lanes_of<T>, most[v]); });
  Number<T> result = lanes[0];
  for (const Number<T> lane : lanes) result = lane > result ? lane : result;
  for (; i < n; ++i) result = number(x[i]) > result ? number(x[i]) : result;
  return result;
}

// A line; x and y may be the same. The sum meets the NaN that largest() skipped; -inf - -inf and inf - inf make one.
template <class T>
void softmax_line(T* y, const T* x, std::int64_t n, bool log, Number<T>* exponentials) {
  const Vector<T> most = spread<T>(largest(x, n));
  const Number<T> sum = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const Vector<T> e = exp(load_n(x + i, k) - most);
    if (!log) store_n(exponentials + i, e, k);
    return k == lanes_of<T> ? e : first_n(e, k);
  });
  if (log) {
    const Vector<T> log_sum = spread<T>(static_cast<Number<T>>(__builtin_log(sum)));
    map(y, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(x + i, k) - most - log_sum; });
  } else {
    const Vector<T> divisor = spread<T>(sum);
    map(y, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(exponentials + i, k) / divisor; });
  }
}

template <class T>
void forward(void* y_memory, const void* x_memory, std::int64_t lines, std::int64_t n, LineStrides y_strides,
             LineStrides x_strides, bool log, void* memory) {
  auto* y = static_cast<T*>(y_memory);
  const auto* x = static_cast<const T*>(x_memory);
  auto* buffer = static_cast<Number<T>*>(memory);
  if (x_strides.step == 1 && y_strides.step == 1) {
    for (std::int64_t l = 0; l < lines; ++l)
      softmax_line(y + l * y_strides.line, x + l * x_strides.line, n, log, buffer);
    return;
  }
  load_lines(buffer, x, lines, n, x_strides);
  for (std::int64_t l = 0; l < lines; ++l) {
    Number<T>* line = buffer + l * (n + kLinePadding);
    softmax_line(line, line, n, log, buffer + lines * (n + kLinePadding));
  }
  store_lines(y, buffer, lines, n, y_strides);
}

// softmax: dx = y (dy - sum(dy y));  log_softmax: dx = dy - e^y sum(dy). dx and dy may be the same.
template <class T>
void backward_line(T* dx, const T* dy, const T* y, std::int64_t n, bool log) {
  const Number<T> sum = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    return log ? load_n(dy + i, k) : load_n(dy + i, k) * load_n(y + i, k);
  });
  const Vector<T> total = spread<T>(sum);
  if (log)
    map(dx, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
      return load_n(dy + i, k) - exp(load_n(y + i, k)) * total;
    });
  else
    map(dx, n,
        [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(y + i, k) * (load_n(dy + i, k) - total); });
}

template <class T>
void backward(void* dx_memory, const void* dy_memory, const void* y_memory, std::int64_t lines, std::int64_t n,
              LineStrides dx_strides, LineStrides dy_strides, LineStrides y_strides, bool log, void* memory) {
  auto* dx = static_cast<T*>(dx_memory);
  const auto *dy = static_cast<const T*>(dy_memory), *y = static_cast<const T*>(y_memory);
  if (dx_strides.step == 1 && dy_strides.step == 1 && y_strides.step == 1) {
    for (std::int64_t l = 0; l < lines; ++l)
      backward_line(dx + l * dx_strides.line, dy + l * dy_strides.line, y + l * y_strides.line, n, log);
    return;
  }
  auto* gradient = static_cast<Number<T>*>(memory);
  auto* output = gradient + lines * (n + kLinePadding);
  load_lines(gradient, dy, lines, n, dy_strides);
  load_lines(output, y, lines, n, y_strides);
  for (std::int64_t l = 0; l < lines; ++l) {
    Number<T>* line = gradient + l * (n + kLinePadding);
    backward_line(line, line, output + l * (n + kLinePadding), n, log);
  }
  store_lines(dx, gradient, lines, n, dx_strides);
}

}  // namespace

SoftmaxKernels softmax_kernels() {
  return {{forward<half_bits>, forward<float>, forward<double>},
          {backward<half_bits>, backward<float>, backward<double>}};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
