#include "engine/cuda/elementwise.cuh"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad::cuda {

namespace {

using namespace halfgrad::elementwise;

template <class Op>
struct Forward {
  template <class C>
  __device__ void operator()(const C (&in)[2], C (&y)[1]) const {
    y[0] = static_cast<C>(Op::forward(in[0], in[1]));
  }
};

template <class Op, class C>
void run_op(const Elementwise& work, const Queue& queue) {
  run<C, 1, 2>(Op::name, Forward<Op>{}, work, queue);
}

template <class Op>
constexpr RunBinary integer_entry() {
  if constexpr (takes_integers<Op>)
    return run_op<Op, std::int64_t>;
  else
    return nullptr;
}

template <class Ops>
struct Table;
template <class... Ops>
struct Table<List<Ops...>> {
  static constexpr RunBinary entries[][3] = {{run_op<Ops, float>, run_op<Ops, double>, integer_entry<Ops>()}...};
};

}  // namespace

void binary(int op, DType compute, const Elementwise& work, const Queue& queue) {
  Table<BinaryOps>::entries[op][column_of(compute)](work, queue);
}

}  // namespace halfgrad::cuda
