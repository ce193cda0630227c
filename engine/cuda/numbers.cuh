#pragma once
// Numbers in a GPU's memory, of any dtype, and in its registers, where they are computed as float, double or int64.
// The rules are those of the CPU (cpu/kernels/elementwise.cpp): a half is rounded once.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "engine/cuda/launch.cuh"
#include "engine/dtype.h"
#include "engine/ops/elementwise_ops/op.h"

namespace halfgrad::cuda {

__device__ inline float to_float(half x) { return __half2float(__half(__half_raw{x.bits()})); }
__device__ inline half to_half(float x) { return half::from_bits(__half_as_ushort(__float2half_rn(x))); }
__device__ inline half to_half(double x) { return half::from_bits(__half_as_ushort(__double2half(x))); }

/// Element `i` of an array of `dtype`, as a C.
template <class C>
__device__ inline C load(const void* data, DType dtype, std::uint32_t i) {
  switch (dtype) {
    case f16:
      return static_cast<C>(to_float(static_cast<const half*>(data)[i]));
    case f32:
      return static_cast<C>(static_cast<const float*>(data)[i]);
    case f64:
      return static_cast<C>(static_cast<const double*>(data)[i]);
    case i32:
      return static_cast<C>(static_cast<const std::int32_t*>(data)[i]);
    case i64:
      return static_cast<C>(static_cast<const std::int64_t*>(data)[i]);
    case u8:
      return static_cast<C>(static_cast<const std::uint8_t*>(data)[i]);
    case boolean:
      return static_cast<const std::uint8_t*>(data)[i] != 0 ? C(1) : C(0);
  }
  return C(0);
}

/// A C as a D: a fraction becomes an integer by truncation, saturating.
template <class D, class C>
__device__ inline D converted(C x) {
  if constexpr (std::is_same_v<D, half>) {
    if constexpr (std::is_same_v<C, double>)
      return to_half(x);
    else
      return to_half(static_cast<float>(x));  // an integer that a float cannot hold is infinite as a half
  } else if constexpr (std::is_same_v<D, bool>) {
    return x != C(0);
  } else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<C>) {
    return elementwise::truncated<D>(x);
  } else {
    return static_cast<D>(x);
  }
}

/// Makes x the element `i` of an array of `dtype`.
template <class C>
__device__ inline void store(void* data, DType dtype, std::uint32_t i, C x) {
  switch (dtype) {
    case f16:
      static_cast<half*>(data)[i] = converted<half>(x);
      break;
    case f32:
      static_cast<float*>(data)[i] = converted<float>(x);
      break;
    case f64:
      static_cast<double*>(data)[i] = converted<double>(x);
      break;
    case i32:
      static_cast<std::int32_t*>(data)[i] = converted<std::int32_t>(x);
      break;
    case i64:
      static_cast<std::int64_t*>(data)[i] = converted<std::int64_t>(x);
      break;
    case u8:
      static_cast<std::uint8_t*>(data)[i] = converted<std::uint8_t>(x);
      break;
    case boolean:
      static_cast<bool*>(data)[i] = converted<bool>(x);
      break;
  }
}

/// a + b and a * b. Integers wrap around, without undefined behaviour.
template <class T>
__device__ inline T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}
template <class T>
__device__ inline T times(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}

// --- eight numbers at a time -----------------------------------------------------------------------------------------
// A thread moves fewer instructions per byte when it moves 16 bytes: eight halves, or half as many floats twice.

inline constexpr std::uint32_t kEight = 8;

struct alignas(16) Halves {
  __half2 pair[4];
};
struct alignas(16) Floats {
  float number[4];
};
struct alignas(8) Bytes {
  std::uint8_t number[8];
};

/// The elements 8 i ... 8 i + 7; moves_by_eight(dtype).
__device__ inline void load_eight(const void* data, DType dtype, std::uint32_t i, float (&x)[kEight]) {
  switch (dtype) {
    case f16: {
      const Halves from = aligned<Halves>(data)[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 two = __half22float2(from.pair[k]);
        x[2 * k] = two.x;
        x[2 * k + 1] = two.y;
      }
      break;
    }
    case f32: {
#pragma unroll
      for (std::uint32_t part = 0; part < 2; ++part) {
        const Floats from = aligned<Floats>(data)[2 * i + part];
#pragma unroll
        for (int k = 0; k < 4; ++k) x[4 * part + k] = from.number[k];
      }
      break;
    }
    default: {
      const Bytes from = aligned<Bytes>(data)[i];
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = dtype == boolean ? from.number[k] != 0 : from.number[k];
    }
  }
}

__device__ inline void store_eight(void* data, DType dtype, std::uint32_t i, const float (&x)[kEight]) {
  switch (dtype) {
    case f16: {
      Halves to;
#pragma unroll
      for (int k = 0; k < 4; ++k) to.pair[k] = __floats2half2_rn(x[2 * k], x[2 * k + 1]);
      aligned<Halves>(data)[i] = to;
      break;
    }
    case f32: {
#pragma unroll
      for (std::uint32_t part = 0; part < 2; ++part) {
        Floats to;
#pragma unroll
        for (int k = 0; k < 4; ++k) to.number[k] = x[4 * part + k];
        aligned<Floats>(data)[2 * i + part] = to;
      }
      break;
    }
    default: {
      Bytes to;
#pragma unroll
      for (int k = 0; k < 8; ++k)
        to.number[k] = dtype == boolean ? converted<bool>(x[k]) : converted<std::uint8_t>(x[k]);
      aligned<Bytes>(data)[i] = to;
    }
  }
}

}  // namespace halfgrad::cuda
