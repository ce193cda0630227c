#pragma once
// Every elementwise op, each as one struct: its name, its forward and its gradient, written once as templates.
//
// They are instantiated with T = float, a vector of floats, double or int64 inside the device kernels (halves are widened
// to float there and rounded once on the way out), and with T = Tensor when a gradient of the gradient is wanted. From one
// definition come the op on every device, in every dtype, its fused backward kernel and its higher derivatives.
//
//   name      what errors and the graph call it
//   types     what it accepts: `numbers` computes integers as integers, `floats` turns them into f32 first, and
//             `predicate` answers with bool
//   uses      which of x and y the gradient reads (only those are kept for backward)
//   fields    constants of the op (at most two doubles), e.g. the slope of leaky_relu
//   forward   y = f(x)
//   backward  dx from dy, x and y. Written with dy, not as a bare derivative, so that a gradient that is masked out is
//             exactly 0 even where dy is inf or NaN.

#include "engine/ops/elementwise_ops/activations.h"
#include "engine/ops/elementwise_ops/binary.h"
#include "engine/ops/elementwise_ops/unary.h"

namespace halfgrad::elementwise {
inline namespace HALFGRAD_ISA {

// An op's number on the seam is its position in these lists.
using UnaryOps =
    List<Neg, Abs, Sign, Floor, Ceil, Round, Reciprocal, Square, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Sin, Cos, Tanh,
         Sigmoid, Relu, LeakyRelu, Gelu, Silu, Elu, Softplus, Erf, Erfc, Clamp, LogicalNot, IsNan, IsInf, IsFinite>;
using BinaryOps =
    List<Add, Sub, Mul, Div, Pow, Maximum, Minimum, Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor>;

}  // namespace HALFGRAD_ISA
}  // namespace halfgrad::elementwise
