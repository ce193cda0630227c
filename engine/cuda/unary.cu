#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

template <class Op>
struct Forward {
  template <class C>
  static constexpr bool exists = !std::is_integral_v<C> || takes_integers<Op>;
  Op op;
  Forward(const double* params, const Elementwise&) : op(make<Op>(params)) {}
  template <class C>
  __device__ void operator()(const C (&x)[1], C (&y)[1]) const {
    y[0] = static_cast<C>(op.forward(x[0]));
  }
};

}  // namespace

void unary(int op, const double* params, DType compute, const Elementwise& work, const Queue& queue) {
  Table<Forward, 1, 1, elementwise::UnaryOps>::run_op(op, compute, params, work, queue);
}

}  // namespace halfgrad::cuda
