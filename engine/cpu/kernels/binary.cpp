// The loops of elementwise ops of two operands, and of where().

#include "engine/cpu/kernels/elementwise_loops.h"

namespace halfgrad::cpu::HALFGRAD_ISA {
namespace {

using namespace halfgrad::elementwise;
using halfgrad::elementwise::where;  // of scalars; that of Floats is found by its arguments

template <class Op, class T>
[[gnu::flatten]] void forward(Extent extent, const Rows& y, const Rows& a, const Rows& b) {
  for_rows<T, AnyRow>(
      extent, y, [](Element<T> left, Element<T> right) HALFGRAD_LAMBDA { return Op::forward(left, right); }, a, b);
}

template <class Op, class T>
[[gnu::flatten]] void backward(Extent extent, const Rows& da, const Rows& db, const Rows& dy, const Rows& a,
                               const Rows& b, const Rows& y) {
  using E = Element<T>;
  if constexpr (Op::uses == BinaryUses::inputs_and_output) {
    if (da.data)
      for_rows<T, AnyRow>(
          extent, da, [](E d, E l, E r, E v) HALFGRAD_LAMBDA { return Op::backward_a(d, l, r, v); }, dy, a, b, y);
    if (db.data)
      for_rows<T, AnyRow>(
          extent, db, [](E d, E l, E r, E v) HALFGRAD_LAMBDA { return Op::backward_b(d, l, r, v); }, dy, a, b, y);
  } else {  // the op ignores its last argument
    if (da.data)
      for_rows<T, AnyRow>(
          extent, da, [](E d, E l, E r) HALFGRAD_LAMBDA { return Op::backward_a(d, l, r, l); }, dy, a, b);
    if (db.data)
      for_rows<T, AnyRow>(
          extent, db, [](E d, E l, E r) HALFGRAD_LAMBDA { return Op::backward_b(d, l, r, l); }, dy, a, b);
  }
}

template <class T>
void select(Extent extent, const Rows& y, const Rows& condition, const Rows& a, const Rows& b) {
  using E = Element<T>;
  for_rows<T, AnyRow>(
      extent, y, [](E c, E l, E r) HALFGRAD_LAMBDA { return where(c != E(0), l, r); }, condition, a, b);
}

template <class Op, class T>
constexpr ElementwiseKernels::Binary forward_entry() {
  if constexpr (std::is_same_v<T, std::int64_t> ? Op::types != Types::floats
                                                : Op::types != Types::predicate || !std::is_same_v<T, half_bits>)
    return &forward<Op, T>;
  else
    return nullptr;
}
template <class Op, class T>
constexpr ElementwiseKernels::BinaryBackward backward_entry() {
  if constexpr (Op::types == Types::predicate || std::is_same_v<T, std::int64_t>)
    return nullptr;
  else if constexpr (Op::uses == BinaryUses::nothing)
    return nullptr;
  else
    return &backward<Op, T>;
}

template <class Ops>
struct Tables;
template <class... Ops>
struct Tables<List<Ops...>> {
  static constexpr ElementwiseKernels::Binary forward[][kStoredTypes] = {
      {forward_entry<Ops, float>(), forward_entry<Ops, double>(), forward_entry<Ops, std::int64_t>(),
       forward_entry<Ops, half_bits>()}...};
  static constexpr ElementwiseKernels::BinaryBackward backward[][kStoredTypes] = {
      {backward_entry<Ops, float>(), backward_entry<Ops, double>(), nullptr, backward_entry<Ops, half_bits>()}...};
};

constexpr ElementwiseKernels::Select select_table[] = {&select<float>, &select<double>, &select<std::int64_t>};

}  // namespace

void binary_kernels(ElementwiseKernels& kernels) {
  kernels.binary = Tables<BinaryOps>::forward;
  kernels.binary_backward = Tables<BinaryOps>::backward;
  kernels.select = select_table;
}

}  // namespace halfgrad::cpu::HALFGRAD_ISA
