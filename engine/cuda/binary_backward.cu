#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

using namespace halfgrad::elementwise;

// From dy, a, b and y, of which the op reads what it needs, to the gradients that are wanted.
template <class Op>
struct Backward {
  bool wants_a, wants_b;
  template <class C>
  __device__ void operator()(const C (&in)[4], C (&out)[2]) const {
    if (wants_a) out[0] = Op::backward_a(in[0], in[1], in[2], in[3]);
    if (wants_b) out[1] = Op::backward_b(in[0], in[1], in[2], in[3]);
  }
};

template <class Op, class C>
void run_op(const Elementwise& work, const Queue& queue) {
  const Backward<Op> f{work.operands[0].data != nullptr, work.operands[1].data != nullptr};
  run<C, 2, 4>(Op::name, f, work, queue);
}

template <class Op, class C>
constexpr RunBinary entry() {
  if constexpr (has_gradient<Op>)
    return run_op<Op, C>;
  else
    return nullptr;
}

template <class Ops>
struct Table;
template <class... Ops>
struct Table<List<Ops...>> {
  static constexpr RunBinary entries[][2] = {{entry<Ops, float>(), entry<Ops, double>()}...};
};

}  // namespace

void binary_backward(int op, DType compute, const Elementwise& work, const Queue& queue) {
  Table<BinaryOps>::entries[op][column_of(compute)](work, queue);
}

}  // namespace halfgrad::cuda
