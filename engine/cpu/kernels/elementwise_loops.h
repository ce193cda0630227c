#pragma once
// What the loops of unary.cpp and binary.cpp are made of.

#include "engine/cpu/kernels/elementwise.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/lanes.h"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cpu::HALFGRAD_ISA {

/// What an op is instantiated with for numbers that are stored as T.
template <class T>
struct ElementOf {
  using type = Number<T>;
};
template <>
struct ElementOf<float> {
  using type = Floats;
};
template <>
struct ElementOf<half_bits> {
  using type = Floats;
};
template <class T>
using Element = typename ElementOf<T>::type;

HALFGRAD_INLINE vfloat lanes_in(Floats x) { return x.lanes; }
HALFGRAD_INLINE vfloat lanes_in(Mask condition) { return condition.bits ? broadcast(1.0F) : vfloat{}; }
template <class N>
HALFGRAD_INLINE N lanes_in(N x) {
  return x;
}

/// A row that is read: from i on the k numbers that lie in memory,
template <class T>
struct DenseRow {
  const T* data;

  HALFGRAD_INLINE DenseRow(const Rows& rows, std::int64_t row)
      : data(static_cast<const T*>(rows.data) + row * rows.step) {}
  HALFGRAD_INLINE Element<T> get(std::int64_t i, std::int64_t k) const {
    return k == lanes_of<T> ? load(data + i) : load_n(data + i, k);
  }
};
/// or that, or one number for the whole row.
template <class T>
struct AnyRow {
  const T* data = nullptr;
  Vector<T> number = {};

  HALFGRAD_INLINE AnyRow(const Rows& rows, std::int64_t row) {
    if (rows.spread)
      number = spread<T>(static_cast<const Number<T>*>(rows.data)[row * rows.step]);
    else
      data = static_cast<const T*>(rows.data) + row * rows.step;
  }
  HALFGRAD_INLINE Element<T> get(std::int64_t i, std::int64_t k) const {
    if (data == nullptr) return number;
    return k == lanes_of<T> ? load(data + i) : load_n(data + i, k);
  }
};
/// The same where a vector is one number.
template <class T>
requires(lanes_of<T> == 1) struct AnyRow<T> {
  const T* data;
  std::int64_t step;

  HALFGRAD_INLINE AnyRow(const Rows& rows, std::int64_t row)
      : data(static_cast<const T*>(rows.data) + row * rows.step), step(rows.spread ? 0 : 1) {}
  HALFGRAD_INLINE T get(std::int64_t i, std::int64_t) const { return data[i * step]; }
};

/// Sets each row of y from those of the operands: y = f(operands...), as many numbers at a time as there are lanes.
template <class T, template <class> class Row, class F, class... Operands>
HALFGRAD_INLINE void for_rows(Extent extent, const Rows& y, F f, const Operands&... operands) {
  for (std::int64_t row = 0; row < extent.rows; ++row) {
    T* out = static_cast<T*>(y.data) + row * y.step;
    [&](const auto&... sources) HALFGRAD_LAMBDA {
      for (std::int64_t i = 0; i < extent.columns; i += lanes_of<T>) {
        const std::int64_t rest = extent.columns - i, k = rest < lanes_of<T> ? rest : lanes_of<T>;
        const Vector<T> result = static_cast<Vector<T>>(lanes_in(f(sources.get(i, k)...)));
        k == lanes_of<T> ? store(out + i, result) : store_n(out + i, result, k);
      }
    }(Row<T>(operands, row)...);
  }
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
