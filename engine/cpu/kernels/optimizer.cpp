// The pass over memory that all optimizers share; their formulas are in engine/optimizer_rules.h.
//
// The update runs on whole vectors: halves are widened on their way in, and the parameter is rounded on its way out.
// Rarer mixtures of types go through a small buffer in the first-level cache, a block at a time. So weights, state and
// gradient cross the memory bus once, whatever their types are.

#include "engine/cpu/kernels/optimizer.h"

#include "engine/cpu/simd.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

constexpr std::int64_t kBlock = 512;

// --- one formula for vectors of floats and for single doubles ---
template <class C>
struct Vector;
template <>
struct Vector<float> {
  using type = vfloat;
  static constexpr std::int64_t lanes = kLanes;
};
template <>
struct Vector<double> {
  using type = double;
  static constexpr std::int64_t lanes = 1;
};

HALFGRAD_INLINE vfloat load_lanes(const float* p, std::int64_t n) { return load_n(p, n); }
HALFGRAD_INLINE vfloat load_lanes(const half_bits* p, std::int64_t n) { return load_n(p, n); }
HALFGRAD_INLINE double load_lanes(const double* p, std::int64_t) { return *p; }
HALFGRAD_INLINE void store_lanes(float* p, vfloat v, std::int64_t n) { store_n(p, v, n); }
HALFGRAD_INLINE void store_lanes(half_bits* p, vfloat v, std::int64_t n) { store_n(p, v, n); }
HALFGRAD_INLINE void store_lanes(double* p, double v, std::int64_t) { *p = v; }
HALFGRAD_INLINE vfloat square_root(vfloat x) { return sqrt(x); }
HALFGRAD_INLINE double square_root(double x) { return __builtin_sqrt(x); }

// --- types in memory -> the type of the arithmetic, and back ---
template <class T>
HALFGRAD_INLINE T* at(const FloatArray& array, std::int64_t i) {
  return static_cast<T*>(array.data) + i;
}

HALFGRAD_INLINE void convert_array(const half_bits* from, float* to, std::int64_t n) { half_to_float(from, to, n); }
HALFGRAD_INLINE void convert_array(const half_bits* from, double* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
HALFGRAD_INLINE void convert_array(const float* from, half_bits* to, std::int64_t n) { float_to_half(from, to, n); }
HALFGRAD_INLINE void convert_array(const double* from, half_bits* to, std::int64_t n) { double_to_half(from, to, n); }
template <class From, class To>
HALFGRAD_INLINE void convert_array(const From* from, To* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

constexpr FloatType type_of(float) { return FloatType::f32; }
constexpr FloatType type_of(double) { return FloatType::f64; }

// Elements [i, i + n) as numbers of type C: in their place when they are such already, else converted into
// `buffer`.
template <class C>
C* read_block(const FloatArray& array, std::int64_t i, std::int64_t n, C* buffer) {
  if (array.type == type_of(C())) return at<C>(array, i);
  switch (array.type) {
    case FloatType::f16:
      convert_array(at<half_bits>(array, i), buffer, n);
      break;
    case FloatType::f32:
      convert_array(at<float>(array, i), buffer, n);
      break;
    case FloatType::f64:
      convert_array(at<double>(array, i), buffer, n);
      break;
  }
  return buffer;
}

template <class C>
void write_block(const C* values, const FloatArray& array, std::int64_t i, std::int64_t n) {
  switch (array.type) {
    case FloatType::f16:
      convert_array(values, at<half_bits>(array, i), n);
      break;
    case FloatType::f32:
      convert_array(values, at<float>(array, i), n);
      break;
    case FloatType::f64:
      convert_array(values, at<double>(array, i), n);
      break;
  }
}

// --- the pass ---
// `rule` gives the new weights from the old ones, the scaled gradient and the states s[0 ... kStates-1], which it updates.
template <int kStates, class C, class Rule>
struct Pass {
  C* const (&states)[2];
  const C grad_scale;
  const Rule rule;

  /// Elements [i, i + n), whose weights and gradient begin at these; `rounded`, if there is one, gets the new weights too.
  template <class G>
  HALFGRAD_INLINE void update(C* weights, const G* gradient, G* rounded, std::int64_t i, std::int64_t n) const {
    using V = typename Vector<C>::type;
    constexpr std::int64_t lanes = Vector<C>::lanes;
    for (std::int64_t j = 0; j < n; j += lanes) {
      const std::int64_t valid = n - j < lanes ? n - j : lanes;
      V s[2] = {};
      for (int k = 0; k < kStates; ++k) s[k] = load_lanes(states[k] + i + j, valid);
      const V w = rule(load_lanes(weights + j, valid), load_lanes(gradient + j, valid) * grad_scale, s,
                       [](V x) { return square_root(x); });
      for (int k = 0; k < kStates; ++k) store_lanes(states[k] + i + j, s[k], valid);
      store_lanes(weights + j, w, valid);
      if (rounded != nullptr) store_lanes(rounded + j, w, valid);
    }
  }
};

template <int kStates, class C, class Rule>
void update(const UpdateWork& work, C* const (&states)[2], const Rule& rule, std::int64_t begin, std::int64_t end) {
  const Pass<kStates, C, Rule> pass{states, static_cast<C>(work.control.grad_scale), rule};
  if constexpr (sizeof(C) == sizeof(float)) {  // mixed precision
    if (work.master.type == FloatType::f32 && work.param.type == FloatType::f16 && work.grad.type == FloatType::f16)
      return pass.update(at<C>(work.master, begin), at<half_bits>(work.grad, begin), at<half_bits>(work.param, begin),
                         begin, end - begin);
  }
  const bool own_master = work.param.data == work.master.data;
  C gradient_buffer[kBlock], weight_buffer[kBlock];
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t n = end - i < kBlock ? end - i : kBlock;
    C* weights = read_block(work.master, i, n, weight_buffer);
    pass.update(weights, read_block(work.grad, i, n, gradient_buffer), static_cast<C*>(nullptr), i, n);
    const bool in_place = weights != weight_buffer;
    if (!in_place) write_block(weights, work.master, i, n);
    if (!own_master) write_block(weights, work.param, i, n);
  }
}

// --- entry points: choose the type of the arithmetic and the number of states ---
template <template <class> class Rule, class Constants>
void run(const UpdateWork& work, const Constants& constants, std::int64_t begin, std::int64_t end) {
  const auto run_in = [&](auto zero) {
    using C = decltype(zero);
    C* const states[2] = {static_cast<C*>(work.state[0]), static_cast<C*>(work.state[1])};
    const Rule<C> rule(work.control, constants, work.progress);
    if (states[1] != nullptr) {
      update<2>(work, states, rule, begin, end);
    } else if (states[0] != nullptr) {
      update<1>(work, states, rule, begin, end);
    } else {
      update<0>(work, states, rule, begin, end);
    }
  };
  if (work.master.type == FloatType::f64) {
    run_in(0.0);
  } else {
    run_in(0.0F);
  }
}

// --- statistics ---
// sum + x * x. For an x that was a float the square is exact, so that a fused one gives the same bits.
HALFGRAD_INLINE double add_square(double sum, float x) {
#if defined(__FMA__)
  return __builtin_fma(x, x, sum);
#else
  return sum + static_cast<double>(x) * x;
#endif
}
HALFGRAD_INLINE double add_square(double sum, double x) { return sum + x * x; }

// Sixteen partial sums on every instruction set, so that the order of the additions does not depend on it. In
// f64 the square of a float can neither overflow nor vanish, so a sum over floats is finite exactly when all
// of them are, and counting can wait until one is not.
template <class C>
void stats(const FloatArray& grad, std::int64_t begin, std::int64_t end, double* sum_of_squares,
           std::int64_t* non_finite) {
  constexpr int kSums = 16;
  double sums[kSums] = {};
  alignas(64) C buffer[kBlock];
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t n = end - i < kBlock ? end - i : kBlock;
    const C* g = read_block(grad, i, n, buffer);
    std::int64_t j = 0;
    for (; j + kSums <= n; j += kSums)
      for (int k = 0; k < kSums; ++k) sums[k] = add_square(sums[k], g[j + k]);
    for (int k = 0; j < n; ++j, ++k) sums[k] = add_square(sums[k], g[j]);
  }
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  *sum_of_squares = sums[0];

  *non_finite = 0;
  if (sums[0] - sums[0] == 0) return;
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t n = end - i < kBlock ? end - i : kBlock;
    const C* g = read_block(grad, i, n, buffer);
    for (std::int64_t j = 0; j < n; ++j) *non_finite += g[j] - g[j] == 0 ? 0 : 1;
  }
}

void grad_stats(const FloatArray& grad, std::int64_t begin, std::int64_t end, double* sum_of_squares,
                std::int64_t* non_finite) {
  if (grad.type == FloatType::f64) {
    stats<double>(grad, begin, end, sum_of_squares, non_finite);
  } else {
    stats<float>(grad, begin, end, sum_of_squares, non_finite);
  }
}

}  // namespace

OptimizerKernels optimizer_kernels() {
  return {run<rules::SgdRule>, run<rules::AdamRule>, run<rules::RmspropRule>, grad_stats};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
