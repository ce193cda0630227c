// Elementwise ops on the GPU: from views to launches. The space is brought into the order of memory (engine/loops.h), cut
// into pieces in which a kernel can count in 32 bits, and each piece gets the faster kernel if its memory allows it.

#include "engine/cuda/elementwise.h"

#include <algorithm>
#include <initializer_list>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/pieces.h"
#include "engine/error.h"
#include "engine/ops/elementwise_ops.h"

namespace halfgrad {

namespace {

using cuda::Elementwise;
using cuda::Operand;
using cuda::Piece;

// A single number in host memory: a literal.
bool is_number(const View& view) {
  bool is_one = view.device.is_cpu();
  for (std::size_t d = 0; d < view.shape.size(); ++d) is_one = is_one && (view.shape[d] == 1 || view.strides[d] == 0);
  return is_one;
}

// A literal as the kernel's argument that it becomes.
void set_number(Operand& operand, const View& literal) {
  visit_dtype(literal.dtype, [&]<class T>(T) {
    const T value = *literal.as<T>();
    operand.is_whole = std::is_integral_v<T>;
    if constexpr (std::is_integral_v<T>)
      operand.whole = static_cast<std::int64_t>(value);
    else
      operand.fraction = static_cast<double>(value);
  });
}

// Of an op's operands, results must be memory of this device; the others may be numbers.
Operand operand_of(const char* kernel, const View& view, Device device, bool is_result) {
  Operand operand;
  operand.dtype = view.dtype;
  if (!view) return operand;
  if (view.device == device) {
    operand.data = view.data;
    return operand;
  }
  check(is_number(view) && !is_result, "{}: an operand of shape {} is on {}, expected on {}; move it with to(Device)",
        kernel, view.shape, view.device, device);
  set_number(operand, view);
  return operand;
}

bool fits_by_eight(const Piece& piece, const Elementwise& work, std::size_t operands) {
  if (piece.nest.shape.rank() != 1) return false;
  for (std::size_t k = 0; k < operands; ++k) {
    const Operand& operand = work.operands[k];
    if (!operand.data || !operand.moves) continue;
    if (piece.nest.strides[k][0] != 1 || !cuda::moves_by_eight(operand.dtype) ||
        reinterpret_cast<std::uintptr_t>(operand.data) % cuda::alignment_of_eight(operand.dtype) != 0)
      return false;
  }
  return true;
}

// Calls run(work) for the pieces of an op, the first `results` of whose operands are written.
template <class Run>
void for_pieces(const char* kernel, Device device, const LoopNest& nest, std::size_t results,
                std::initializer_list<const View*> views, Run&& run) {
  if (nest.numel == 0) return;
  for (const Piece& piece : cuda::pieces(nest)) {
    Elementwise work{cuda::space_of(piece), {}, false};
    std::size_t k = 0;
    for (const View* view : views) {
      Operand& operand = work.operands[k];
      operand = operand_of(kernel, *view, device, k < results);
      if (operand.data) operand.data = view->at(piece.begin[k]);
      operand.moves = piece.nest.strides[k].back() != 0;
      ++k;
    }
    work.by_eight = fits_by_eight(piece, work, views.size());
    run(work);
  }
}

// A literal that is 0, and not -0: every dtype writes it as bytes of 0.
bool is_zero(const View& view) {
  const char* const bytes = view.as<char>();
  return is_number(view) && std::all_of(bytes, bytes + size_of(view.dtype), [](char byte) { return byte == 0; });
}

}  // namespace

void CudaBackend::unary(int op, const double* params, DType compute, const View& y, const View& x) {
  for_pieces("unary", device(), {&y, &x}, 1, {&y, &x},
             [&](const Elementwise& work) { cuda::unary(op, params, compute, work, queue()); });
}

void CudaBackend::activate(const View& y, Activation activation) {
  if (activation == Activation::none || y.numel() == 0) return;
  constexpr double kNoParams[2] = {};
  unary(elementwise::UnaryOps::position<elementwise::Relu>(), kNoParams, compute_dtype(y.dtype), y, y);
}

void CudaBackend::unary_backward(int op, const double* params, const View& dx, const View& dy, const View& x,
                                 const View& y) {
  const View& read = x ? x : y;
  for_pieces("unary_backward", device(), {&dx, &dy, &read}, 1, {&dx, &dy, &read}, [&](const Elementwise& work) {
    cuda::unary_backward(op, params, compute_dtype(dx.dtype), work, queue());
  });
}

void CudaBackend::binary(int op, DType compute, const View& y, const View& a, const View& b) {
  for_pieces("binary", device(), {&y, &a, &b}, 1, {&y, &a, &b},
             [&](const Elementwise& work) { cuda::binary(op, compute, work, queue()); });
}

void CudaBackend::binary_backward(int op, const View& da, const View& db, const View& dy, const View& a, const View& b,
                                  const View& y) {
  // The gradient that is wanted decides the order.
  for_pieces("binary_backward", device(), {da ? &da : &db, &db, &dy, &a, &b, &y}, 2, {&da, &db, &dy, &a, &b, &y},
             [&](const Elementwise& work) { cuda::binary_backward(op, compute_dtype(dy.dtype), work, queue()); });
}

void CudaBackend::select(const View& y, const View& condition, const View& a, const View& b) {
  for_pieces("select", device(), {&y, &condition, &a, &b}, 1, {&y, &condition, &a, &b},
             [&](const Elementwise& work) { cuda::select(compute_dtype(y.dtype), work, queue()); });
}

void CudaBackend::copy(const View& dst, const View& src) {
  const LoopNest nest{&dst, &src};
  if (nest.numel == 0) return;
  const std::size_t size = size_of(dst.dtype), bytes = static_cast<std::size_t>(nest.numel) * size;
  if (dst.device == device() && nest.is_dense(0) && is_zero(src)) {
    HALFGRAD_CUDA(cudaMemsetAsync(dst.data, 0, bytes, queue().stream));
    return;
  }
  if (dst.dtype == src.dtype && dst.device == device() && src.device == device()) {  // bytes, whatever they mean
    if (nest.is_dense(0) && nest.is_dense(1)) {
      HALFGRAD_CUDA(cudaMemcpyAsync(dst.data, src.data, bytes, cudaMemcpyDeviceToDevice, queue().stream));
      return;
    }
    return for_pieces("copy", device(), nest, 1, {&dst, &src},
                      [&](const Elementwise& work) { cuda::move(size, work, queue()); });
  }
  // A half or a byte is exact in f32; an f64 on either side, or a longer integer, is read as it is, so that there is one
  // rounding.
  const bool wide = src.dtype == f64 || (dst.dtype == f64 && is_floating(src.dtype));
  const DType compute = wide ? f64 : size_of(src.dtype) == 1 ? f32 : compute_dtype(src.dtype);
  for_pieces("copy", device(), nest, 1, {&dst, &src},
             [&](const Elementwise& work) { cuda::convert(compute, work, queue()); });
}

}  // namespace halfgrad
