#include "engine/cpu/kernels/softmax.h"

#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/lanes.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

HALFGRAD_INLINE vfloat exp(vfloat x) { return math::exp(Floats(x)).lanes; }
HALFGRAD_INLINE double exp(double x) { return math::exp(x); }

template <class T>
HALFGRAD_INLINE T* at(const Lines& lines, std::int64_t line) {
  return static_cast<T*>(lines.data) + line * lines.line;
}

// Lines that lie side by side in memory are read together, element by element: each cache line is touched
// once.
template <class T>
void load_lines(Number<T>* buffer, const Lines& x, std::int64_t count, std::int64_t n) {
  if (x.step == 1 || count == 1) {
    for (std::int64_t l = 0; l < count; ++l) load_line(buffer + l * (n + kLinePadding), at<const T>(x, l), n, x.step);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t l = 0; l < count; ++l)
        buffer[l * (n + kLinePadding) + i] = number(at<const T>(x, l)[i * x.step]);
  }
}

template <class T>
void store_lines(const Lines& y, const Number<T>* buffer, std::int64_t count, std::int64_t n) {
  if (y.step == 1 || count == 1) {
    for (std::int64_t l = 0; l < count; ++l) store_line(at<T>(y, l), buffer + l * (n + kLinePadding), n, y.step);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t l = 0; l < count; ++l) assign(at<T>(y, l)[i * y.step], buffer[l * (n + kLinePadding) + i]);
  }
}

// The largest number of a line, or -inf. A NaN is skipped.
template <class T>
Number<T> largest(const T* x, std::int64_t n) {
  constexpr int kVectors = 4;  // at once, since each comparison waits for the one before
  Vector<T> most[kVectors];
  unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { most[v] = spread<T>(-__builtin_inff()); });
  const auto larger = [](Vector<T> a, Vector<T> b) HALFGRAD_LAMBDA { return b > a ? b : a; };
  std::int64_t i = 0;
  for (; i + kVectors * lanes_of<T> <= n; i += kVectors * lanes_of<T>)
    unroll<kVectors>([&](auto v) HALFGRAD_LAMBDA { most[v] = larger(most[v], load(x + i + v * lanes_of<T>)); });
  for (; i + lanes_of<T> <= n; i += lanes_of<T>) most[0] = larger(most[0], load(x + i));
  if (i < n) most[1] = larger(most[1], first_n(load_n(x + i, n - i), n - i, most[1]));
  const Vector<T> of_lanes = larger(larger(most[0], most[1]), larger(most[2], most[3]));
  Number<T> lanes[lanes_of<T>];
  store(lanes, of_lanes);
  for (int half = lanes_of<T> / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      lanes[lane] = lanes[lane + half] > lanes[lane] ? lanes[lane + half] : lanes[lane];
  return lanes[0];
}

// The sum of e^(x - most), which stores its terms unless that is null. It meets the NaN that largest() skipped; -inf - -inf
// and inf - inf make one.
template <class T>
Number<T> sum_of_exponentials(const T* x, std::int64_t n, Number<T> most, Number<T>* terms) {
  const Vector<T> shift = spread<T>(most);
  return pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const Vector<T> e = exp(load_n(x + i, k) - shift);
    if (terms) store_n(terms + i, e, k);
    return k == lanes_of<T> ? e : first_n(e, k);
  });
}

// The logarithm of a softmax is x - most - log_sum.
template <class T>
struct Normalizer {
  Number<T> most, log_sum;
  HALFGRAD_INLINE Vector<T> log_p(Vector<T> x) const { return x - spread<T>(most) - spread<T>(log_sum); }
};
template <class T>
Normalizer<T> normalizer(const T* x, std::int64_t n) {
  const Number<T> most = largest(x, n);
  return {most, static_cast<Number<T>>(__builtin_log(sum_of_exponentials(x, n, most, nullptr)))};
}

// --- softmax and log_softmax -----------------------------------------------------------------------------------------

// A line; x and y may be the same.
template <class T>
void softmax_line(T* y, const T* x, std::int64_t n, bool log, Number<T>* exponentials) {
  if (log) {
    const Normalizer<T> norm = normalizer(x, n);
    map(y, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return norm.log_p(load_n(x + i, k)); });
  } else {
    const Vector<T> divisor = spread<T>(sum_of_exponentials(x, n, largest(x, n), exponentials));
    map(y, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return load_n(exponentials + i, k) / divisor; });
  }
}

template <class T>
void forward(const Lines& y, const Lines& x, std::int64_t count, std::int64_t n, bool log, void* memory) {
  auto* buffer = static_cast<Number<T>*>(memory);
  if (x.step == 1 && y.step == 1) {
    for (std::int64_t l = 0; l < count; ++l) softmax_line(at<T>(y, l), at<const T>(x, l), n, log, buffer);
    return;
  }
  load_lines<T>(buffer, x, count, n);
  for (std::int64_t l = 0; l < count; ++l) {
    Number<T>* line = buffer + l * (n + kLinePadding);
    softmax_line(line, line, n, log, buffer + count * (n + kLinePadding));
  }
  store_lines<T>(y, buffer, count, n);
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
void backward(const Lines& dx, const Lines& dy, const Lines& y, std::int64_t count, std::int64_t n, bool log,
              void* memory) {
  if (dx.step == 1 && dy.step == 1 && y.step == 1) {
    for (std::int64_t l = 0; l < count; ++l) backward_line(at<T>(dx, l), at<const T>(dy, l), at<const T>(y, l), n, log);
    return;
  }
  auto* gradient = static_cast<Number<T>*>(memory);
  auto* output = gradient + count * (n + kLinePadding);
  load_lines<T>(gradient, dy, count, n);
  load_lines<T>(output, y, count, n);
  for (std::int64_t l = 0; l < count; ++l) {
    Number<T>* line = gradient + l * (n + kLinePadding);
    backward_line(line, line, output + l * (n + kLinePadding), n, log);
  }
  store_lines<T>(dx, gradient, count, n);
}

// --- cross entropy ---------------------------------------------------------------------------------------------------

// What is known of line l once its normalizer is: `all` is the sum of weight * log_p.
template <class T>
HALFGRAD_INLINE void put_loss(const CrossEntropyLines& o, std::int64_t l, std::int64_t n, std::int64_t target,
                              Number<T> x_of_target, Normalizer<T> norm, Number<T> all) {
  using N = Number<T>;
  const bool counts = target != o.ignore_index;
  const N share = !counts ? N(0) : o.weight ? static_cast<const N*>(o.weight)[target] : N(1);
  N loss = counts ? -(x_of_target - norm.most - norm.log_sum) * share : N(0);
  if (counts && o.smoothing > 0)
    loss = static_cast<N>(1 - o.smoothing) * loss - static_cast<N>(o.smoothing / static_cast<double>(n)) * all;
  *at<N>(o.loss, l) = loss;
  if (o.share.data) *at<N>(o.share, l) = share;
  if (!o.most.data) return;
  *at<N>(o.most, l) = norm.most;
  *at<N>(o.log_sum, l) = norm.log_sum;
}

template <class T>
void loss_of_line(const T* x, std::int64_t n, const CrossEntropyLines& o, std::int64_t l) {
  const std::int64_t target = *at<const std::int64_t>(o.target, l);
  if (target == o.ignore_index) return put_loss<T>(o, l, n, target, 0, {0, 0}, 0);
  const Normalizer<T> norm = normalizer(x, n);
  const auto* const weight = static_cast<const Number<T>*>(o.weight);
  Number<T> all = 0;
  if (o.smoothing > 0)
    all = pairwise_sum<T>(0, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
      const Vector<T> log_p = norm.log_p(load_n(x + i, k)), term = weight ? log_p * load_n(weight + i, k) : log_p;
      return k == lanes_of<T> ? term : first_n(term, k);
    });
  put_loss<T>(o, l, n, target, number(x[target]), norm, all);
}

// A loss that takes `of_target` of -log_p[target] and `of_each` of weight * -log_p of every class has the gradient
// dx = p * (of_target + of_each * sum(weight)) - of_each * weight, less of_target at the target.
template <class T>
struct LossGradient {
  Number<T> of_target, of_each, total;
};
template <class T>
HALFGRAD_INLINE LossGradient<T> loss_gradient(const CrossEntropyLines& o, Number<T> dy, std::int64_t n,
                                              std::int64_t target) {
  using N = Number<T>;
  const N scaled = o.divisor ? dy / *static_cast<const N*>(o.divisor) : dy;
  const N of_target =
      scaled * static_cast<N>(1 - o.smoothing) * (o.weight ? static_cast<const N*>(o.weight)[target] : 1);
  const N of_each = scaled * static_cast<N>(o.smoothing / static_cast<double>(n));
  return {of_target, of_each, o.smoothing > 0 ? of_target + of_each * static_cast<N>(o.weight_sum) : of_target};
}

// x and dx may be the same.
template <class T>
void gradient_of_line(T* dx, const T* x, Number<T> dy, std::int64_t n, const CrossEntropyLines& o, std::int64_t l) {
  using N = Number<T>;
  const std::int64_t target = *at<const std::int64_t>(o.target, l);
  if (target == o.ignore_index)
    return map(dx, n, [](std::int64_t, std::int64_t) HALFGRAD_LAMBDA { return Vector<T>{}; });
  const auto* const weight = static_cast<const N*>(o.weight);
  const Normalizer<T> norm = {*at<const N>(o.most, l), *at<const N>(o.log_sum, l)};
  const LossGradient<T> g = loss_gradient<T>(o, dy, n, target);
  const auto gradient = [&](Vector<T> v, std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA {
    const Vector<T> d = exp(norm.log_p(v)) * g.total;
    if (!(o.smoothing > 0)) return d;
    return weight ? d - load_n(weight + i, k) * g.of_each : d - g.of_each;
  };
  const Vector<T> at_target = load_n(x + target, 1);
  map(dx, n, [&](std::int64_t i, std::int64_t k) HALFGRAD_LAMBDA { return gradient(load_n(x + i, k), i, k); });
  store_n(dx + target, gradient(at_target, target, 1) - g.of_target, 1);
}

// --- ... of few classes: a line does not fill the lanes of a vector, so each lane has a line of its own ---------------

constexpr std::int64_t kFewClasses = 32;

HALFGRAD_INLINE vfloat logarithm(vfloat x) { return math::log(Floats(x)).lanes; }
HALFGRAD_INLINE double logarithm(double x) { return math::log(x); }

// The class i of lane l is at buffer[i * lanes + l].
template <class T>
HALFGRAD_INLINE void load_across(Number<T>* buffer, const Lines& x, std::int64_t first, std::int64_t k,
                                 std::int64_t n) {
  constexpr int L = lanes_of<T>;
  const T* from = at<const T>(x, first);
  for (std::int64_t i = 0; i < n; ++i, from += x.step, buffer += L) {
    if (x.line == 1) {
      store(buffer, load_n(from, k));
    } else {
      for (std::int64_t l = 0; l < L; ++l) buffer[l] = l < k ? number(from[l * x.line]) : Number<T>(0);
    }
  }
}
template <class T>
HALFGRAD_INLINE void store_across(const Lines& y, const Number<T>* buffer, std::int64_t first, std::int64_t k,
                                  std::int64_t n) {
  T* to = at<T>(y, first);
  for (std::int64_t i = 0; i < n; ++i, to += y.step, buffer += lanes_of<T>) {
    if (y.line == 1) {
      store_n(to, load(buffer), k);
    } else {
      for (std::int64_t l = 0; l < k; ++l) assign(to[l * y.line], buffer[l]);
    }
  }
}

template <class T>
void losses_across(const CrossEntropyLines& o, std::int64_t first, std::int64_t k, std::int64_t n) {
  constexpr int L = lanes_of<T>;
  using N = Number<T>;
  N x[kFewClasses * L], most[L], log_sum[L], all[L] = {};
  load_across<T>(x, o.x, first, k, n);
  Vector<T> largest_so_far = spread<T>(-__builtin_inff()), sum = {}, weighted = {};
  for (std::int64_t i = 0; i < n; ++i) {
    const Vector<T> v = load(x + i * L);
    largest_so_far = v > largest_so_far ? v : largest_so_far;
  }
  for (std::int64_t i = 0; i < n; ++i) sum = sum + exp(load(x + i * L) - largest_so_far);
  const Vector<T> logarithms = logarithm(sum);
  if (o.smoothing > 0) {
    for (std::int64_t i = 0; i < n; ++i) {
      const Vector<T> log_p = load(x + i * L) - largest_so_far - logarithms;
      weighted = weighted + (o.weight ? log_p * static_cast<const N*>(o.weight)[i] : log_p);
    }
    store(all, weighted);
  }
  store(most, largest_so_far);
  store(log_sum, logarithms);
  for (std::int64_t l = 0; l < k; ++l) {
    const std::int64_t target = *at<const std::int64_t>(o.target, first + l);
    const N of_target = target == o.ignore_index ? N(0) : x[target * L + l];
    put_loss<T>(o, first + l, n, target, of_target, {most[l], log_sum[l]}, all[l]);
  }
}

template <class T>
void gradients_across(const CrossEntropyLines& o, std::int64_t first, std::int64_t k, std::int64_t n) {
  constexpr int L = lanes_of<T>;
  using N = Number<T>;
  N x[kFewClasses * L], most[L] = {}, log_sum[L] = {}, of_target[L] = {}, of_each[L] = {}, total[L] = {};
  load_across<T>(x, o.x, first, k, n);
  for (std::int64_t l = 0; l < k; ++l) {
    const std::int64_t target = *at<const std::int64_t>(o.target, first + l);
    most[l] = *at<const N>(o.most, first + l);
    log_sum[l] = *at<const N>(o.log_sum, first + l);
    if (target == o.ignore_index) continue;
    const LossGradient<T> g = loss_gradient<T>(o, number(*at<const T>(o.dy, first + l)), n, target);
    of_target[l] = g.of_target;
    of_each[l] = g.of_each;
    total[l] = g.total;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    Vector<T> d = exp(load(x + i * L) - load(most) - load(log_sum)) * load(total);
    if (o.smoothing > 0) d = d - (o.weight ? load(of_each) * static_cast<const N*>(o.weight)[i] : load(of_each));
    store(x + i * L, d);
  }
  for (std::int64_t l = 0; l < k; ++l) {
    const std::int64_t target = *at<const std::int64_t>(o.target, first + l);
    if (target != o.ignore_index)
      x[target * L + l] -= of_target[l];
    else
      for (std::int64_t i = 0; i < n; ++i) x[i * L + l] = 0;  // where a NaN may be
  }
  store_across<T>(o.dx, x, first, k, n);
}

// f(first, k) for the lines of a bundle, as many at a time as there are lanes.
template <class T, class F>
HALFGRAD_INLINE void for_each_lanes(std::int64_t count, F f) {
  for (std::int64_t l = 0; l < count; l += lanes_of<T>) f(l, count - l < lanes_of<T> ? count - l : lanes_of<T>);
}

// --- ... of a bundle -------------------------------------------------------------------------------------------------

template <class T>
void cross_entropy(const CrossEntropyLines& o, std::int64_t count, std::int64_t n, void* memory) {
  if (n <= kFewClasses) return for_each_lanes<T>(count, [&](auto l, auto k) { losses_across<T>(o, l, k, n); });
  if (o.x.step == 1) {
    for (std::int64_t l = 0; l < count; ++l) loss_of_line(at<const T>(o.x, l), n, o, l);
    return;
  }
  auto* buffer = static_cast<Number<T>*>(memory);
  load_lines<T>(buffer, o.x, count, n);
  for (std::int64_t l = 0; l < count; ++l) loss_of_line(buffer + l * (n + kLinePadding), n, o, l);
}

template <class T>
void cross_entropy_backward(const CrossEntropyLines& o, std::int64_t count, std::int64_t n, void* memory) {
  if (n <= kFewClasses) return for_each_lanes<T>(count, [&](auto l, auto k) { gradients_across<T>(o, l, k, n); });
  const auto dy = [&](std::int64_t l) { return number(*at<const T>(o.dy, l)); };
  if (o.x.step == 1 && o.dx.step == 1) {
    for (std::int64_t l = 0; l < count; ++l) gradient_of_line(at<T>(o.dx, l), at<const T>(o.x, l), dy(l), n, o, l);
    return;
  }
  auto* buffer = static_cast<Number<T>*>(memory);
  load_lines<T>(buffer, o.x, count, n);
  for (std::int64_t l = 0; l < count; ++l) {
    Number<T>* line = buffer + l * (n + kLinePadding);
    gradient_of_line(line, line, dy(l), n, o, l);
  }
  store_lines<T>(o.dx, buffer, count, n);
}

}  // namespace

SoftmaxKernels softmax_kernels() {
  return {{forward<half_bits>, forward<float>, forward<double>},
          {backward<half_bits>, backward<float>, backward<double>},
          {cross_entropy<half_bits>, cross_entropy<float>, cross_entropy<double>},
          {cross_entropy_backward<half_bits>, cross_entropy_backward<float>, cross_entropy_backward<double>}};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
