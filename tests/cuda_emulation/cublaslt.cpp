// cuBLASLt, as far as products with a bias or relu need it. An algorithm remembers what it was promised (how operands are aligned) and
// what it needs (working memory), and is refused where that does not hold. There is none for f64, so that what is done then
// is tested, too.

#include <cublasLt.h>

#include <cstring>

#include "product.h"

using namespace cuda_emulation;

struct cublasLtContext {};

namespace {

// The library's structs are opaque and as large as these, or larger.
struct Operation {
  cublasOperation_t a_op = CUBLAS_OP_N, b_op = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  const void* bias = nullptr;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;

  bool has_bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
  bool has_relu() const { return epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
};
struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, ld = 0, step = 0;
  std::int32_t count = 1;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // a, b, c, d
};
struct Algorithm {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {};
  std::uint32_t bias_alignment = 0;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr std::uint64_t kWanted = 4096;  // working memory

template <class T>
Existing<T>& existing(const char* what) {
  static auto* const all = new Existing<T>(what);
  return *all;
}
Existing<Operation>& operations() { return existing<Operation>("a cublasLtMatmulDesc"); }
Existing<Layout>& layouts() { return existing<Layout>("a cublasLtMatrixLayout"); }
Existing<Preference>& preferences() { return existing<Preference>("a cublasLtMatmulPreference"); }

Operation& of(cublasLtMatmulDesc_t it) { return operations().checked(reinterpret_cast<Operation*>(it)); }
Layout& of(cublasLtMatrixLayout_t it) { return layouts().checked(reinterpret_cast<Layout*>(it)); }
Preference& of(cublasLtMatmulPreference_t it) { return preferences().checked(reinterpret_cast<Preference*>(it)); }

// An attribute of exactly the size of its type.
template <class T>
cublasStatus_t take(T& value, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

Number number_of(cudaDataType_t type) { return type == CUDA_R_16F ? Number::half : Number::single; }

bool is_possible(const Operation& operation, const Layout& a, const Layout& b, const Layout& c) {
  return (a.type == CUDA_R_16F || a.type == CUDA_R_32F) && a.type == b.type && a.type == c.type &&
         (!operation.has_bias() || a.type == operation.bias_type) &&
         (operation.has_bias() || operation.has_relu() || operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT) &&
         (operation.compute == CUBLAS_COMPUTE_32F ||
          (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F));
}

// The product that the layouts mean; one that fits nothing when they do not fit each other.
ColumnProduct product_of(const Operation& operation, const void* a, const Layout& a_layout, const void* b,
                         const Layout& b_layout, const void* c, const Layout& c_layout) {
  const auto matrices = [](const void* data, const Layout& layout, cublasOperation_t op) {
    return ColumnMatrices{data, layout.ld, layout.step, op != CUBLAS_OP_N};
  };
  const bool turn_a = operation.a_op != CUBLAS_OP_N, turn_b = operation.b_op != CUBLAS_OP_N;
  const std::int64_t k = turn_a ? a_layout.rows : a_layout.columns;
  const bool meet = (turn_a ? a_layout.columns : a_layout.rows) == c_layout.rows &&
                    (turn_b ? b_layout.rows : b_layout.columns) == c_layout.columns &&
                    (turn_b ? b_layout.columns : b_layout.rows) == k && a_layout.count == c_layout.count &&
                    b_layout.count == c_layout.count;
  return {number_of(a_layout.type),
          meet ? c_layout.rows : -1,
          c_layout.columns,
          k,
          c_layout.count,
          matrices(a, a_layout, operation.a_op),
          matrices(b, b_layout, operation.b_op),
          matrices(c, c_layout, CUBLAS_OP_N),
          operation.has_bias() ? operation.bias : nullptr,
          operation.has_relu()};
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const std::lock_guard lock(everything());
  *handle = existing<cublasLtContext>("a cuBLASLt handle").add(new cublasLtContext);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::lock_guard lock(everything());
  existing<cublasLtContext>("a cuBLASLt handle").remove(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute, cudaDataType_t) {
  const std::lock_guard lock(everything());
  auto* const made = operations().add(new Operation);
  made->compute = compute;
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  const std::lock_guard lock(everything());
  operations().remove(&of(operation));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  const std::lock_guard lock(everything());
  Operation& it = of(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(it.a_op, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(it.b_op, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(it.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(it.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(it.bias, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  const std::lock_guard lock(everything());
  auto* const made =
      layouts().add(new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld, 0, 1});
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const std::lock_guard lock(everything());
  layouts().remove(&of(layout));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  const std::lock_guard lock(everything());
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(of(layout).count, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return take(of(layout).step, value, bytes);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  const std::lock_guard lock(everything());
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(preferences().add(new Preference));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const std::lock_guard lock(everything());
  preferences().remove(&of(preference));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  const std::lock_guard lock(everything());
  Preference& it = of(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(it.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(it.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(it.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(it.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(it.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(it.alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const std::lock_guard lock(everything());
  existing<cublasLtContext>("a cuBLASLt handle").checked(handle);
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_possible(of(operation), of(a), of(b), of(d)) || of(c).type != of(d).type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& its = of(preference);
  Algorithm algorithm;
  algorithm.workspace = its.workspace < kWanted ? 0 : kWanted;
  std::memcpy(algorithm.alignment, its.alignment, sizeof algorithm.alignment);
  if (of(operation).has_bias()) algorithm.bias_alignment = alignment_of(of(operation).bias);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  existing<cublasLtContext>("a cuBLASLt handle").checked(handle);
  const Operation& its = of(operation);
  if (!is_possible(its, of(a_layout), of(b_layout), of(d_layout))) return CUBLAS_STATUS_NOT_SUPPORTED;
  const ColumnProduct product = product_of(its, a, of(a_layout), b, of(b_layout), d, of(d_layout));
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), chosen, sizeof algorithm);
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (alignment_of(operands[i]) < algorithm.alignment[i]) return CUBLAS_STATUS_INVALID_VALUE;
  if (!product.fits() || (its.has_bias() && (!its.bias || alignment_of(its.bias) < algorithm.bias_alignment)) ||
      workspace_bytes < algorithm.workspace || reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  product.check_operands("cublasLtMatmul");
  check_operand("cublasLtMatmul", "the working memory", workspace, Number::twice,
                static_cast<std::int64_t>(workspace_bytes / 8));
  const Blend blend(product.type, alpha, beta);
  run_call("cublasLtMatmul", stream, [=] {
    use_workspace(workspace, algorithm.workspace);
    product.compute(blend);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
