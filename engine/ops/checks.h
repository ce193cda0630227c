#pragma once
// The checks that most ops begin with, and how they see their operands.

#include "engine/tensor.h"

namespace halfgrad::detail {

/// Throws Error unless x is a tensor of float dtype.
inline void require_float(const char* op, const char* name, const Tensor& x) {
  check(x.defined(), "{}: {} is undefined, expected a tensor", op, name);
  check(is_floating(x.dtype()), "{}: {} is {}, expected f16, f32 or f64: convert it, {}.to(f32)", op, name,
        name_of(x.dtype()), name);
}

/// Throws Error unless `other` is a tensor of the dtype and on the device of x.
inline void require_same(const char* op, const char* name, const Tensor& x, const char* other_name,
                         const Tensor& other) {
  check(other.defined(), "{}: {} is undefined, expected a tensor", op, other_name);
  check(other.dtype() == x.dtype(), "{}: {} is {} but {} is {}: cast one of them, {}.to({}) or {}.to({})", op, name,
        name_of(x.dtype()), other_name, name_of(other.dtype()), name, name_of(other.dtype()), other_name,
        name_of(x.dtype()));
  check(other.device() == x.device(), "{}: {} and {} are on different devices: move one of them with .to(device)", op,
        name, other_name);
}

/// x's memory, read as if it had this shape, which it broadcasts to; absent when x is undefined.
inline View view_as(const Tensor& x, const Shape& shape) {
  if (!x.defined()) return {};
  View view = x.view_of_data();
  if (view.shape == shape) return view;
  view.strides = broadcast_strides(view.shape, view.strides, shape);
  view.shape = shape;
  return view;
}

/// Uninitialised, in channels-last memory: shape is (N, C, H, W).
inline Tensor empty_channels_last(const Shape& shape, DType dtype, Device device) {
  const std::int64_t c = shape[1], h = shape[2], w = shape[3];
  return empty_strided(shape, {c * h * w, 1, w * c, c}, dtype, device);
}

/// Channels-last memory, and not by the accident of sizes of 1.
inline bool prefers_channels_last(const Tensor& x) {
  return x.rank() == 4 && x.is_channels_last() && !x.is_contiguous();
}

/// Uninitialised, row-major or channels-last.
inline Tensor empty_in_layout(bool channels_last, const Shape& shape, DType dtype, Device device) {
  return channels_last ? empty_channels_last(shape, dtype, device) : empty(shape, dtype, device);
}

}  // namespace halfgrad::detail
