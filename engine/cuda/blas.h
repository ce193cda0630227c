#pragma once
// Products of matrices by cuBLAS, and by cuBLASLt those that end with a bias or an activation.
//
// Both count columns: the element (i, j) of a matrix is at i + j*ld. A matrix whose rows are dense is to them its transpose.
// So for c = a b they are asked for c' = b' a': the operands change places, each keeps its form, and nothing is moved.

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "engine/activation.h"
#include "engine/cuda/allocator.h"
#include "engine/cuda/libraries.h"
#include "engine/dtype.h"

namespace halfgrad::cuda {

/// The matrices of a batch, `step` elements apart. The rows of each are dense and lie `ld` apart, or, if it is transposed,
/// its columns.
struct Matrices {
  void* data = nullptr;
  std::int64_t ld = 0;
  std::int64_t step = 0;
  bool transposed = false;
};

/// c[i] = a[i] b[i] for i < count: a [m, k], b [k, n], c [m, n], which is not transposed. No size is 0.
struct Product {
  DType dtype = f32;  ///< of all: f16, f32 or f64. f16 and f32 are computed in f32
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  Matrices a, b, c;
};

class Blas {
 public:
  /// Everything goes through `stream`. Working memory is taken from the allocator once, so that no product allocates any.
  Blas(cudaStream_t stream, CachingAllocator& allocator);
  ~Blas();

  /// With `add`, c += a b, which is rounded once like c = a b.
  void multiply(const Product&, bool add);
  /// c = activation(a b + bias), bias [n], dense, or null. False when cuBLASLt has no way to do it. (Of relu its guide says
  /// max(x, 0) and nothing of NaN, which must stay NaN: tests/cuda/test_libraries.cpp asks the GPU.)
  bool multiply_and_finish(const Product&, const void* bias, Activation activation);

 private:
  struct Plan;
  using Key = std::array<std::int64_t, 18>;
  static Key key_of(const Product&, const void* bias, Activation activation);
  Plan make_plan(const Product&, const void* bias, Activation activation);

  const cudaStream_t stream_;
  CachingAllocator& allocator_;
  std::mutex mutex_;  // a handle and a plan are used by one thread at a time
  void* workspace_;
  Owned<cublasHandle_t, cublasDestroy> handle_;
  Owned<cublasLtHandle_t, cublasLtDestroy> lt_;
  std::map<Key, Plan> plans_;
};

}  // namespace halfgrad::cuda
