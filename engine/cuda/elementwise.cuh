#pragma once
// The two kernels that every elementwise op runs in. A function f(in, out) computes kOut results from kIn numbers of type
// C, which is float, double or int64: halves and the other dtypes are converted on the way in and out.
//
//   strided_kernel    any layout, any dtype, any kind of broadcasting: one element per thread at a time
//   by_eight_kernel   dense memory of f16, f32 or bytes, computed in float: eight elements per thread at a time

#include "engine/cuda/elementwise.h"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"

namespace halfgrad::cuda {

template <int n>
struct Operands {
  Operand at[n];
};

/// The number of an operand that is no memory.
template <class C>
__device__ inline C number_of(const Operand& operand) {
  return operand.is_whole ? static_cast<C>(operand.whole) : static_cast<C>(operand.fraction);
}

template <class F, class C, int kOut, int kIn>
__global__ void __launch_bounds__(kThreads) strided_kernel(F f, Space space, Operands<kOut + kIn> operands) {
  for (std::uint64_t i = first_item(); i < space.numel; i += item_step()) {
    std::uint32_t at[kOut + kIn];
    space.positions(static_cast<std::uint32_t>(i), at);
    C in[kIn], out[kOut];
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      const Operand& operand = operands.at[kOut + k];
      in[k] = operand.data ? load<C>(operand.data, operand.dtype, at[kOut + k]) : number_of<C>(operand);
    }
    f(in, out);
#pragma unroll
    for (int k = 0; k < kOut; ++k)
      if (const Operand& operand = operands.at[k]; operand.data) store(operand.data, operand.dtype, at[k], out[k]);
  }
}

template <class F, int kOut, int kIn>
__global__ void __launch_bounds__(kThreads) by_eight_kernel(F f, std::uint32_t numel, Operands<kOut + kIn> operands) {
  float fixed[kIn];  // the operands that do not move
#pragma unroll
  for (int k = 0; k < kIn; ++k) {
    const Operand& operand = operands.at[kOut + k];
    fixed[k] = operand.data && !operand.moves ? load<float>(operand.data, operand.dtype, 0) : number_of<float>(operand);
  }
  const auto moves = [&](int k) { return operands.at[kOut + k].data && operands.at[kOut + k].moves; };

  for (std::uint64_t i = first_item(); i < numel / kEight; i += item_step()) {
    float in[kIn][kEight], out[kOut][kEight];
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      const Operand& operand = operands.at[kOut + k];
      if (moves(k)) {
        load_eight(operand.data, operand.dtype, static_cast<std::uint32_t>(i), in[k]);
      } else {
#pragma unroll
        for (std::uint32_t j = 0; j < kEight; ++j) in[k][j] = fixed[k];
      }
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kEight; ++j) {
      float from[kIn], to[kOut];
#pragma unroll
      for (int k = 0; k < kIn; ++k) from[k] = in[k][j];
      f(from, to);
#pragma unroll
      for (int k = 0; k < kOut; ++k) out[k][j] = to[k];
    }
#pragma unroll
    for (int k = 0; k < kOut; ++k)
      if (const Operand& operand = operands.at[k]; operand.data)
        store_eight(operand.data, operand.dtype, static_cast<std::uint32_t>(i), out[k]);
  }

  // The elements that are left over, fewer than eight.
  const std::uint64_t last = numel / kEight * kEight + first_item();
  if (last < numel) {
    float from[kIn], to[kOut];
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      const Operand& operand = operands.at[kOut + k];
      from[k] = moves(k) ? load<float>(operand.data, operand.dtype, static_cast<std::uint32_t>(last)) : fixed[k];
    }
    f(from, to);
#pragma unroll
    for (int k = 0; k < kOut; ++k)
      if (const Operand& operand = operands.at[k]; operand.data)
        store(operand.data, operand.dtype, static_cast<std::uint32_t>(last), to[k]);
  }
}

/// Runs f over the elements of `work`.
template <class C, int kOut, int kIn, class F>
void run(const char* name, const F& f, const Elementwise& work, const Queue& queue) {
  Operands<kOut + kIn> operands;
  for (int k = 0; k < kOut + kIn; ++k) operands.at[k] = work.operands[k];
  if constexpr (std::is_same_v<C, float>) {
    if (work.by_eight)
      return launch(name, by_eight_kernel<F, kOut, kIn>, grid_for(work.space.numel / kEight + 1, queue), kThreads,
                    queue.stream, f, work.space.numel, operands);
  }
  launch(name, strided_kernel<F, C, kOut, kIn>, grid_for(work.space.numel, queue), kThreads, queue.stream, f,
         work.space, operands);
}

// --- from an op's number to its kernel -------------------------------------------------------------------------------
// What an op does in a kernel is a functor F<Op>, made of the op's constants and its operands: Op::forward in unary.cu and
// binary.cu, Op::backward in their namesakes. F<Op>::exists<C> says whether there is one for numbers of type C.

template <class Op>
inline constexpr bool takes_integers = Op::types != elementwise::Types::floats;
template <class Op>
inline constexpr bool has_gradient = Op::types != elementwise::Types::predicate;

/// The op with its constants.
template <class Op>
Op make(const double* params) {
  Op op;
  if constexpr (!std::is_empty_v<Op>) __builtin_memcpy(static_cast<void*>(&op), params, sizeof(Op));
  return op;
}

using RunOp = void (*)(const double* params, const Elementwise&, const Queue&);

/// For each op of a list how it runs in float, double and int64, with kOut results of kIn numbers; null: it does not.
template <template <class Op> class F, int kOut, int kIn, class Ops>
struct Table;
template <template <class Op> class F, int kOut, int kIn, class... Ops>
struct Table<F, kOut, kIn, elementwise::List<Ops...>> {
  template <class Op, class C>
  static constexpr RunOp entry() {
    if constexpr (F<Op>::template exists<C>)
      return [](const double* params, const Elementwise& work, const Queue& queue) {
        run<C, kOut, kIn>(Op::name, F<Op>(params, work), work, queue);
      };
    else
      return nullptr;
  }
  static constexpr RunOp entries[][3] = {{entry<Ops, float>(), entry<Ops, double>(), entry<Ops, std::int64_t>()}...};

  static void run_op(int op, DType compute, const double* params, const Elementwise& work, const Queue& queue) {
    entries[op][compute == f64 ? 1 : compute == i64 ? 2 : 0](params, work, queue);
  }
};

}  // namespace halfgrad::cuda
