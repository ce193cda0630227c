#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

// From dy, a, b and y, of which the op reads what it needs, to the gradients that are wanted.
template <class Op>
struct Backward {
  template <class C>
  static constexpr bool exists = !std::is_integral_v<C> && has_gradient<Op>;
  bool wants_a, wants_b;
  Backward(const double*, const Elementwise& work)
      : wants_a(work.operands[0].data != nullptr), wants_b(work.operands[1].data != nullptr) {}
  template <class C>
  __device__ void operator()(const C (&in)[4], C (&out)[2]) const {
    if (wants_a) out[0] = Op::backward_a(in[0], in[1], in[2], in[3]);
    if (wants_b) out[1] = Op::backward_b(in[0], in[1], in[2], in[3]);
  }
};

}  // namespace

void binary_backward(int op, DType compute, const Elementwise& work, const Queue& queue) {
  Table<Backward, 2, 4, elementwise::BinaryOps>::run_op(op, compute, nullptr, work, queue);
}

}  // namespace halfgrad::cuda
