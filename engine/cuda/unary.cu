#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

using namespace halfgrad::elementwise;

template <class Op>
struct Forward {
  Op op;
  template <class C>
  __device__ void operator()(const C (&x)[1], C (&y)[1]) const {
    y[0] = static_cast<C>(op.forward(x[0]));
  }
};

template <class Op, class C>
void run_op(const double* params, const Elementwise& work, const Queue& queue) {
  run<C, 1, 1>(Op::name, Forward<Op>{make<Op>(params)}, work, queue);
}

template <class Op>
constexpr RunUnary integer_entry() {
  if constexpr (takes_integers<Op>)
    return run_op<Op, std::int64_t>;
  else
    return nullptr;
}

template <class Ops>
struct Table;
template <class... Ops>
struct Table<List<Ops...>> {
  static constexpr RunUnary entries[][3] = {{run_op<Ops, float>, run_op<Ops, double>, integer_entry<Ops>()}...};
};

}  // namespace

void unary(int op, const double* params, DType compute, const Elementwise& work, const Queue& queue) {
  Table<UnaryOps>::entries[op][column_of(compute)](params, work, queue);
}

}  // namespace halfgrad::cuda
