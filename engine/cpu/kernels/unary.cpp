// The loops of elementwise ops of one operand: each op, and its gradient, for every type.

#include "engine/cpu/kernels/elementwise_loops.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

using namespace halfgrad::elementwise;

template <class Op>
HALFGRAD_INLINE Op make(const double* params) {
  Op op;
  if constexpr (sizeof(Op) >= sizeof(double)) std::memcpy(static_cast<void*>(&op), params, sizeof(Op));
  return op;
}

template <class Op, class T>
[[gnu::flatten]] void forward(const double* params, Extent extent, const Rows& y, const Rows& x) {
  const Op op = make<Op>(params);
  for_rows<T, DenseRow>(
      extent, y, [&](Element<T> v) HALFGRAD_LAMBDA { return op.forward(v); }, x);
}

template <class Op, class T>
[[gnu::flatten]] void backward(const double* params, Extent extent, const Rows& dx, const Rows& dy, const Rows& kept) {
  const Op op = make<Op>(params);
  // Of x and y the op ignores the one that was not kept.
  for_rows<T, DenseRow>(
      extent, dx, [&](Element<T> d, Element<T> v) HALFGRAD_LAMBDA { return op.backward(d, v, v); }, dy, kept);
}

template <class Op, class T>
constexpr ElementwiseKernels::Unary forward_entry() {
  if constexpr (std::is_same_v<T, std::int64_t> ? Op::types != Types::floats
                                                : Op::types != Types::predicate || !std::is_same_v<T, half_bits>)
    return &forward<Op, T>;
  else
    return nullptr;
}
template <class Op, class T>
constexpr ElementwiseKernels::UnaryBackward backward_entry() {
  if constexpr (Op::types == Types::predicate || std::is_same_v<T, std::int64_t>)
    return nullptr;
  else if constexpr (Op::uses == Uses::nothing)
    return nullptr;
  else
    return &backward<Op, T>;
}

template <class Ops>
struct Tables;
template <class... Ops>
struct Tables<List<Ops...>> {
  static constexpr ElementwiseKernels::Unary forward[][kStoredTypes] = {
      {forward_entry<Ops, float>(), forward_entry<Ops, double>(), forward_entry<Ops, std::int64_t>(),
       forward_entry<Ops, half_bits>()}...};
  static constexpr ElementwiseKernels::UnaryBackward backward[][kStoredTypes] = {
      {backward_entry<Ops, float>(), backward_entry<Ops, double>(), nullptr, backward_entry<Ops, half_bits>()}...};
};

}  // namespace

void unary_kernels(ElementwiseKernels& kernels) {
  kernels.unary = Tables<UnaryOps>::forward;
  kernels.unary_backward = Tables<UnaryOps>::backward;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
