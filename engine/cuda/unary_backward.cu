#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

// From dy, and from x or y: the one that the op does not read is ignored by it.
template <class Op>
struct Backward {
  template <class C>
  static constexpr bool exists = !std::is_integral_v<C> && has_gradient<Op>;
  Op op;
  Backward(const double* params, const Elementwise&) : op(make<Op>(params)) {}
  template <class C>
  __device__ void operator()(const C (&in)[2], C (&dx)[1]) const {
    dx[0] = op.backward(in[0], in[1], in[1]);
  }
};

}  // namespace

void unary_backward(int op, const double* params, DType compute, const Elementwise& work, const Queue& queue) {
  Table<Backward, 1, 2, elementwise::UnaryOps>::run_op(op, compute, params, work, queue);
}

}  // namespace halfgrad::cuda
