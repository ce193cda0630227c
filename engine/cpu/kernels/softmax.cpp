#include "engine/cpu/kernels/softmax.h"

#include "engine/cpu/kernels/math.h"
#include "engine/cpu/kernels/lanes.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

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

// y[i..] = f(i, k) for all of [0, n), k lanes at a time.
template <class T, class F>
HALFGRAD_INLINE void map(Number<T>* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + lanes_of<T> <= n; i += lanes_of<T>) store(y + i, f(i, std::int64_t{lanes_of<T>}));
  if (i < n) store_n(y + i, f(i, n - i), n - i);
}

template <class T>
Number<T> largest(const Number<T>* x, std::int64_t n) {
  constexpr int kLanesOfT = lanes_of<T>;
  Vector<T> most = spread<T>(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + kLanesOfT <= n; i += kLanesOfT) {
    const Vector<T> v = load(x + i);
    most = v > most ? v : most;
  }
  Number<T> lanes[kLanesOfT];
  store(lanes, most);
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  for (int l = 1; l < kLanesOfT; ++l) lanes[0] = lanes[l] > lanes[0] ? lanes[l] : lanes[0];
  return lanes[0];
}

// A line in place. A NaN is skipped by largest() but not by the sum; -inf - -inf and inf - inf make one.
template <class T>
void softmax_line(Number<T>* x, std::int64_t n, bool log, Number<T>* exponentials) {
  const Vector<T> most = spread<T>(largest<T>(x, n));
  map<T>(exponentials, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return exp(load_n(x + i, k) - most); });
  const Number<T> sum = pairwise_sum<T>(
      0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(exponentials + i, k); });
  if (log) {
    const Vector<T> log_sum = spread<T>(static_cast<Number<T>>(__builtin_log(sum)));
    map<T>(x, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(x + i, k) - most - log_sum; });
  } else {
    const Vector<T> divisor = spread<T>(sum);
    map<T>(x, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(exponentials + i, k) / divisor; });
  }
}

template <class T>
void forward(void* y, const void* x, std::int64_t lines, std::int64_t n, LineStrides y_strides, LineStrides x_strides,
             bool log, void* memory) {
  auto* buffer = static_cast<Number<T>*>(memory);
  load_lines(buffer, static_cast<const T*>(x), lines, n, x_strides);
  for (std::int64_t l = 0; l < lines; ++l)
    softmax_line<T>(buffer + l * (n + kLinePadding), n, log, buffer + lines * (n + kLinePadding));
  store_lines(static_cast<T*>(y), buffer, lines, n, y_strides);
}

// softmax: dx = y (dy - sum(dy y));  log_softmax: dx = dy - e^y sum(dy)
template <class T>
void backward_line(Number<T>* dy, const Number<T>* y, std::int64_t n, bool log) {
  const Number<T> sum = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    return log ? load_n(dy + i, k) : load_n(dy + i, k) * load_n(y + i, k);
  });
  const Vector<T> total = spread<T>(sum);
  map<T>(dy, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const Vector<T> d = load_n(dy + i, k), v = load_n(y + i, k);
    return log ? d - exp(v) * total : v * (d - total);
  });
}

template <class T>
void backward(void* dx, const void* dy, const void* y, std::int64_t lines, std::int64_t n, LineStrides dx_strides,
              LineStrides dy_strides, LineStrides y_strides, bool log, void* memory) {
  auto* gradient = static_cast<Number<T>*>(memory);
  auto* output = gradient + lines * (n + kLinePadding);
  load_lines(gradient, static_cast<const T*>(dy), lines, n, dy_strides);
  load_lines(output, static_cast<const T*>(y), lines, n, y_strides);
  for (std::int64_t l = 0; l < lines; ++l)
    backward_line<T>(gradient + l * (n + kLinePadding), output + l * (n + kLinePadding), n, log);
  store_lines(static_cast<T*>(dx), gradient, lines, n, dx_strides);
}

}  // namespace

SoftmaxKernels softmax_kernels() {
  return {{forward<half_bits>, forward<float>, forward<double>},
          {backward<half_bits>, backward<float>, backward<double>}};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
