#include "engine/cpu/kernels/elementwise.h"

#include "engine/cpu/simd.h"
#include "engine/ops/elementwise_ops.h"

// x and y of an in-place op are the same memory, element for element, which is no dependence between iterations.
#ifdef __clang__
#define HALFGRAD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HALFGRAD_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

using namespace halfgrad::elementwise;
using i64_t = std::int64_t;

// --- op -> loop ------------------------------------------------------------------------------------------------------

template <class Op>
HALFGRAD_INLINE Op make(const double* params) {
  Op op;
  if constexpr (sizeof(Op) >= sizeof(double)) std::memcpy(static_cast<void*>(&op), params, sizeof(Op));
  return op;
}

template <class Op, class T>
void unary_loop(const double* params, const void* x, void* y, i64_t n) {
  const Op op = make<Op>(params);
  const T* in = static_cast<const T*>(x);
  T* out = static_cast<T*>(y);
  HALFGRAD_INDEPENDENT
  for (i64_t i = 0; i < n; ++i) out[i] = static_cast<T>(op.forward(in[i]));
}

template <class Op, class T>
void unary_backward_loop(const double* params, const void* dy, const void* x, const void* y, void* dx, i64_t n) {
  const Op op = make<Op>(params);
  const T* gradient = static_cast<const T*>(dy);
  const T* read = static_cast<const T*>(Op::uses == Uses::input ? x : y);
  T* out = static_cast<T*>(dx);
  HALFGRAD_INDEPENDENT
  for (i64_t i = 0; i < n; ++i) {
    const T v = read[i];
    out[i] = op.backward(gradient[i], v, v);  // the one that is not read is ignored by the op
  }
}

template <class Op, class T>
void binary_loop(const void* a, const void* b, void* y, i64_t n) {
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  T* out = static_cast<T*>(y);
  HALFGRAD_INDEPENDENT
  for (i64_t i = 0; i < n; ++i) out[i] = static_cast<T>(Op::forward(left[i], right[i]));
}

template <class Op, class T>
void binary_backward_loop(const void* dy, const void* a, const void* b, const void* y, void* da, void* db, i64_t n) {
  const T* gradient = static_cast<const T*>(dy);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  const T* result = static_cast<const T*>(Op::uses == BinaryUses::inputs_and_output ? y : a);
  if (T* out = static_cast<T*>(da)) {
    HALFGRAD_INDEPENDENT
    for (i64_t i = 0; i < n; ++i) out[i] = Op::backward_a(gradient[i], left[i], right[i], result[i]);
  }
  if (T* out = static_cast<T*>(db)) {
    HALFGRAD_INDEPENDENT
    for (i64_t i = 0; i < n; ++i) out[i] = Op::backward_b(gradient[i], left[i], right[i], result[i]);
  }
}

template <class T>
void select_loop(const void* condition, const void* a, const void* b, void* y, i64_t n) {
  const std::uint8_t* c = static_cast<const std::uint8_t*>(condition);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  T* out = static_cast<T*>(y);
  HALFGRAD_INDEPENDENT
  for (i64_t i = 0; i < n; ++i) out[i] = c[i] ? left[i] : right[i];
}

// --- tensor memory <-> buffer ----------------------------------------------------------------------------------------

// How the elements lie in memory. A half is its bits and a bool is a byte of its own type, so that each gets its own
// conversion.
struct Half {
  half_bits bits;
};
struct Bool {
  std::uint8_t byte;
};

template <class T, class S>
HALFGRAD_INLINE T read(S x) {
  return static_cast<T>(x);
}
template <class T>
HALFGRAD_INLINE T read(Half x) {
  return static_cast<T>(to_float(x.bits));
}
template <class T>
HALFGRAD_INLINE T read(Bool x) {
  return x.byte ? T(1) : T(0);
}

template <class D, class T>
struct Write {
  HALFGRAD_INLINE static D from(T x) {
    if constexpr (std::is_integral_v<D> && std::is_floating_point_v<T>)
      return truncated<D>(x);
    else
      return static_cast<D>(x);
  }
};
template <class T>
struct Write<Half, T> {
  HALFGRAD_INLINE static Half from(T x) {
    if constexpr (std::is_same_v<T, double>)
      return {double_to_half(x)};
    else
      return {float_to_half(static_cast<float>(x))};  // an integer that a float cannot hold is infinite as a half
  }
};
template <class T>
struct Write<Bool, T> {
  HALFGRAD_INLINE static Bool from(T x) { return {static_cast<std::uint8_t>(x != 0)}; }
};

template <class S, class T>
void load_loop(const void* src, i64_t stride, void* buffer, i64_t n) {
  const S* in = static_cast<const S*>(src);
  T* out = static_cast<T*>(buffer);
  if (stride == 1) {
    if constexpr (std::is_same_v<S, Half> && std::is_same_v<T, float>) {
      half_to_float(static_cast<const half_bits*>(src), out, n);
    } else if constexpr (std::is_same_v<S, T>) {
      std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
    } else {
      for (i64_t i = 0; i < n; ++i) out[i] = read<T>(in[i]);
    }
  } else if (stride == 0) {
    const T value = read<T>(*in);
    for (i64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (i64_t i = 0; i < n; ++i) out[i] = read<T>(in[i * stride]);
  }
}

template <class D, class T>
void store_loop(const void* buffer, void* dst, i64_t stride, i64_t n) {
  const T* in = static_cast<const T*>(buffer);
  D* out = static_cast<D*>(dst);
  if (stride == 1) {
    if constexpr (std::is_same_v<D, Half> && std::is_same_v<T, float>) {
      float_to_half(in, static_cast<half_bits*>(dst), n);
    } else if constexpr (std::is_same_v<D, T>) {
      std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
    } else {
      for (i64_t i = 0; i < n; ++i) out[i] = Write<D, T>::from(in[i]);
    }
  } else {
    for (i64_t i = 0; i < n; ++i) out[i * stride] = Write<D, T>::from(in[i]);
  }
}

template <class T>
void move_loop(const void* src, i64_t src_stride, void* dst, i64_t dst_stride, i64_t n) {
  const T* in = static_cast<const T*>(src);
  T* out = static_cast<T*>(dst);
  if (src_stride == 1 && dst_stride == 1)
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
  else if (dst_stride == 1)
    for (i64_t i = 0; i < n; ++i) out[i] = in[i * src_stride];
  else
    for (i64_t i = 0; i < n; ++i) out[i * dst_stride] = in[i * src_stride];
}

// --- the tables ------------------------------------------------------------------------------------------------------

template <class Op>
inline constexpr bool takes_integers = Op::types != Types::floats;
template <class Op>
inline constexpr bool has_gradient = Op::types != Types::predicate;

template <class Op, class T>
constexpr ElementwiseKernels::Unary unary_entry() {
  if constexpr (std::is_floating_point_v<T> || takes_integers<Op>)
    return &unary_loop<Op, T>;
  else
    return nullptr;
}
template <class Op, class T>
constexpr ElementwiseKernels::UnaryBackward unary_backward_entry() {
  if constexpr (std::is_floating_point_v<T> && has_gradient<Op>)
    return &unary_backward_loop<Op, T>;
  else
    return nullptr;
}
template <class Op, class T>
constexpr ElementwiseKernels::Binary binary_entry() {
  if constexpr (std::is_floating_point_v<T> || takes_integers<Op>)
    return &binary_loop<Op, T>;
  else
    return nullptr;
}
template <class Op, class T>
constexpr ElementwiseKernels::BinaryBackward binary_backward_entry() {
  if constexpr (std::is_floating_point_v<T> && has_gradient<Op>)
    return &binary_backward_loop<Op, T>;
  else
    return nullptr;
}

template <class Ops>
struct UnaryTables;
template <class... Ops>
struct UnaryTables<List<Ops...>> {
  static constexpr ElementwiseKernels::Unary forward[][kComputeTypes] = {
      {unary_entry<Ops, float>(), unary_entry<Ops, double>(), unary_entry<Ops, i64_t>()}...};
  static constexpr ElementwiseKernels::UnaryBackward backward[][kComputeTypes] = {
      {unary_backward_entry<Ops, float>(), unary_backward_entry<Ops, double>(), nullptr}...};
};

template <class Ops>
struct BinaryTables;
template <class... Ops>
struct BinaryTables<List<Ops...>> {
  static constexpr ElementwiseKernels::Binary forward[][kComputeTypes] = {
      {binary_entry<Ops, float>(), binary_entry<Ops, double>(), binary_entry<Ops, i64_t>()}...};
  static constexpr ElementwiseKernels::BinaryBackward backward[][kComputeTypes] = {
      {binary_backward_entry<Ops, float>(), binary_backward_entry<Ops, double>(), nullptr}...};
};

constexpr ElementwiseKernels::Select select_table[] = {&select_loop<float>, &select_loop<double>, &select_loop<i64_t>};

// In the order of DType.
#define HALFGRAD_ROW(loop, S) \
  { &loop<S, float>, &loop<S, double>, &loop<S, i64_t> }
constexpr ElementwiseKernels::Load load_table[][kComputeTypes] = {
    HALFGRAD_ROW(load_loop, Half),         HALFGRAD_ROW(load_loop, float),        HALFGRAD_ROW(load_loop, double),
    HALFGRAD_ROW(load_loop, std::int32_t), HALFGRAD_ROW(load_loop, std::int64_t), HALFGRAD_ROW(load_loop, std::uint8_t),
    HALFGRAD_ROW(load_loop, Bool)};
constexpr ElementwiseKernels::Store store_table[][kComputeTypes] = {
    HALFGRAD_ROW(store_loop, Half),         HALFGRAD_ROW(store_loop, float),
    HALFGRAD_ROW(store_loop, double),       HALFGRAD_ROW(store_loop, std::int32_t),
    HALFGRAD_ROW(store_loop, std::int64_t), HALFGRAD_ROW(store_loop, std::uint8_t),
    HALFGRAD_ROW(store_loop, Bool)};
#undef HALFGRAD_ROW

constexpr ElementwiseKernels::Move move_table[] = {&move_loop<std::uint8_t>, &move_loop<std::uint16_t>,
                                                   &move_loop<std::uint32_t>, &move_loop<std::uint64_t>};

}  // namespace

ElementwiseKernels elementwise_kernels() {
  using Unary = UnaryTables<UnaryOps>;
  using Binary = BinaryTables<BinaryOps>;
  return {Unary::forward, Unary::backward, Binary::forward, Binary::backward,
          select_table,   load_table,      store_table,     move_table};
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
