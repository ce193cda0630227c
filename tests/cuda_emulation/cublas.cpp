// cuBLAS. More than the real one does, it insists on working memory from its user: without, a product allocates, which a
// CUDA graph does not allow, and may differ in its bits from run to run.

#include <cublas_v2.h>

#include "product.h"

using namespace cuda_emulation;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

namespace {

Existing<cublasContext>& handles() {
  static auto* const all = new Existing<cublasContext>("a cuBLAS handle");
  return *all;
}

bool is_known(cudaDataType_t type) { return type == CUDA_R_16F || type == CUDA_R_32F || type == CUDA_R_64F; }
Number number_of(cudaDataType_t type) {
  return type == CUDA_R_16F ? Number::half : type == CUDA_R_32F ? Number::single : Number::twice;
}

bool fits(cublasComputeType_t compute, cudaDataType_t type) {
  if (type == CUDA_R_64F) return compute == CUBLAS_COMPUTE_64F;
  return compute == CUBLAS_COMPUTE_32F || (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && type == CUDA_R_32F);
}

cublasStatus_t multiply(const char* call, cublasHandle_t handle, const ColumnProduct& product, const void* alpha,
                        const void* beta) {
  const std::lock_guard lock(everything());
  const cublasContext& context = handles().checked(handle);
  if (!product.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  product.check_operands(call);
  if (!context.workspace)
    fault(std::string(call) + ": no working memory; call cublasSetWorkspace, after cublasSetStream");
  const Blend blend(product.type, alpha, beta);
  run_call(call, context.stream, [=] {
    use_workspace(context.workspace, context.workspace_bytes);
    product.compute(blend);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  const std::lock_guard lock(everything());
  *handle = handles().add(new cublasContext);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const std::lock_guard lock(everything());
  handles().remove(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  handles().checked(handle) = {stream, nullptr, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  const std::lock_guard lock(everything());
  cublasContext& context = handles().checked(handle);
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 || !is_in_a_block(workspace, bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  context.workspace = workspace;
  context.workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) {
  const std::lock_guard lock(everything());
  handles().checked(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "another CUBLAS_STATUS";
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an unsupported value or parameter was passed to the function"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "the functionality requested is not supported"
                                                 : "another failure";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                                             const void* a, cudaDataType a_type, std::int64_t lda, long long a_step,
                                             const void* b, cudaDataType b_type, std::int64_t ldb, long long b_step,
                                             const void* beta, void* c, cudaDataType c_type, std::int64_t ldc,
                                             long long c_step, std::int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t) {
  if (!is_known(a_type) || a_type != b_type || a_type != c_type || !fits(compute, a_type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return multiply("cublasGemm", handle,
                  {number_of(a_type),
                   m,
                   n,
                   k,
                   count,
                   {a, lda, a_step, a_op != CUBLAS_OP_N},
                   {b, ldb, b_step, b_op != CUBLAS_OP_N},
                   {c, ldc, c_step, false}},
                  alpha, beta);
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType a_type,
                               std::int64_t lda, const void* b, cudaDataType b_type, std::int64_t ldb, const void* beta,
                               void* c, cudaDataType c_type, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, a_op, b_op, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta,
                                       c, c_type, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
