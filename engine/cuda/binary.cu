#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

template <class Op>
struct Forward {
  template <class C>
  static constexpr bool exists = !std::is_integral_v<C> || takes_integers<Op>;
  Forward(const double*, const Elementwise&) {}
  template <class C>
  __device__ void operator()(const C (&in)[2], C (&y)[1]) const {
    y[0] = static_cast<C>(Op::forward(in[0], in[1]));
  }
};

}  // namespace

void binary(int op, DType compute, const Elementwise& work, const Queue& queue) {
  Table<Forward, 1, 2, elementwise::BinaryOps>::run_op(op, compute, nullptr, work, queue);
}

}  // namespace halfgrad::cuda
