// Matrix products on the GPU: views are brought into the form that cuBLAS takes (blas.h).

#include <optional>
#include <utility>

#include "engine/cuda/blas.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/temporary.h"

namespace halfgrad {

namespace {

using cuda::Matrices;
using cuda::Product;
using cuda::Temporary;

// The matrices of v [B, rows, columns], if cuBLAS can address them: in one direction their numbers must be neighbours, in
// the other they must not overlap.
std::optional<Matrices> addressed(const View& v) {
  const std::int64_t rows = v.shape[1], columns = v.shape[2], down = v.strides[1], across = v.strides[2];
  const std::int64_t step = v.shape[0] == 1 ? 0 : v.strides[0];
  if ((columns == 1 || across == 1) && (rows == 1 || down >= columns))
    return Matrices{v.data, rows == 1 ? columns : down, step, false};
  if ((rows == 1 || down == 1) && (columns == 1 || across >= rows))
    return Matrices{v.data, columns == 1 ? rows : across, step, true};
  return std::nullopt;
}

Temporary& make_dense(Backend& backend, const View& v, std::optional<Temporary>& memory) {
  return memory.emplace(backend, v.dtype, v.shape, contiguous_strides(v.shape));
}

// v, or a dense copy of it.
Matrices read(Backend& backend, const View& v, std::optional<Temporary>& memory) {
  if (const auto matrices = addressed(v)) return *matrices;
  const View& dense = make_dense(backend, v, memory).view;
  backend.copy(dense, v);
  return *addressed(dense);
}

// The same product with all transposed: c' = b' a'.
void transpose(Product& p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  for (Matrices* x : {&p.a, &p.b, &p.c}) x->transposed = !x->transposed;
}

}  // namespace

void CudaBackend::gemm(const View& c, const View& a, const View& b, const View& bias, Activation activation) {
  if (c.numel() == 0) return;
  const float zero = 0;
  View everywhere{const_cast<float*>(&zero), f32, c.shape, Strides(3, 0), Device::cpu()};  // the bias, for all of c
  if (bias) everywhere = {bias.data, bias.dtype, c.shape, {0, 0, bias.strides[0]}, bias.device};
  if (a.shape[2] == 0) {
    copy(c, everywhere);
    return activate(c, activation);
  }

  Product p{c.dtype, c.shape[1], c.shape[2], a.shape[2], c.shape[0], {}, {}, {}};
  std::optional<Temporary> a_memory, b_memory, c_memory, bias_memory;
  p.a = read(*this, a, a_memory);
  p.b = read(*this, b, b_memory);
  // cuBLASLt adds a bias to the columns of a c that lies in rows.
  const std::optional<Matrices> direct = addressed(c);
  const bool is_direct = direct && !(bias && direct->transposed);
  const View& result = is_direct ? c : make_dense(*this, c, c_memory).view;
  p.c = is_direct ? *direct : *addressed(result);
  if (p.c.transposed) transpose(p);

  queue();
  if (!bias && activation == Activation::none) {
    blas().multiply(p, false);
  } else {
    View row;
    if (bias) row = {bias.data, bias.dtype, {1, 1, bias.shape[0]}, {0, 0, bias.strides[0]}, bias.device};
    if (bias && row.shape[2] > 1 && row.strides[2] != 1) {
      const View& dense = make_dense(*this, row, bias_memory).view;
      copy(dense, row);
      row = dense;
    }
    if (!blas().multiply_and_finish(p, row.data, activation)) {
      if (bias) copy(result, everywhere);
      blas().multiply(p, static_cast<bool>(bias));
      activate(result, activation);
    }
  }
  if (!is_direct) copy(c, result);
}

}  // namespace halfgrad
