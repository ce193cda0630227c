// Numbers of any dtype to and from dense buffers of the type that is computed in.

#include "engine/cpu/kernels/elementwise.h"
#include "engine/cpu/simd.h"
#include "engine/ops/elementwise_ops/op.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

using halfgrad::elementwise::truncated;
using i64_t = std::int64_t;

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
  if (src_stride == 1 && dst_stride == 1) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
  } else if (src_stride == 0 && dst_stride == 1) {  // fills
    const T value = *in;
    for (i64_t i = 0; i < n; ++i) out[i] = value;
  } else if (dst_stride == 1) {
    for (i64_t i = 0; i < n; ++i) out[i] = in[i * src_stride];
  } else {
    for (i64_t i = 0; i < n; ++i) out[i * dst_stride] = in[i * src_stride];
  }
}

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

void unary_kernels(ElementwiseKernels& kernels);
void binary_kernels(ElementwiseKernels& kernels);

ElementwiseKernels elementwise_kernels() {
  ElementwiseKernels kernels;
  unary_kernels(kernels);
  binary_kernels(kernels);
  kernels.load = load_table;
  kernels.store = store_table;
  kernels.move = move_table;
  return kernels;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
