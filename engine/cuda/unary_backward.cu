#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

using namespace halfgrad::elementwise;

// From dy, and from x or y: the one that the op does not read is ignored by it.
template <class Op>
struct Backward {
  Op op;
  template <class C>
  __device__ void operator()(const C (&in)[2], C (&dx)[1]) const {
    dx[0] = op.backward(in[0], in[1], in[1]);
  }
};

template <class Op, class C>
void run_op(const double* params, const Elementwise& work, const Queue& queue) {
  run<C, 1, 2>(Op::name, Backward<Op>{make<Op>(params)}, work, queue);
}

template <class Op, class C>
constexpr RunUnary entry() {
  if constexpr (has_gradient<Op>)
    return run_op<Op, C>;
  else
    return nullptr;
}

template <class Ops>
struct Table;
template <class... Ops>
struct Table<List<Ops...>> {
  static constexpr RunUnary entries[][2] = {{entry<Ops, float>(), entry<Ops, double>()}...};
};

}  // namespace

void unary_backward(int op, const double* params, DType compute, const Elementwise& work, const Queue& queue) {
  Table<UnaryOps>::entries[op][column_of(compute)](params, work, queue);
}

}  // namespace halfgrad::cuda
