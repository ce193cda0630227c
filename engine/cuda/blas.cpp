#include "engine/cuda/blas.h"

#include <algorithm>

namespace halfgrad::cuda {

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for the GPUs that want the most

cudaDataType_t type_of(DType dtype) { return dtype == f16 ? CUDA_R_16F : dtype == f32 ? CUDA_R_32F : CUDA_R_64F; }

cublasComputeType_t compute_type_of(DType dtype) {
  if (dtype == f64) return CUBLAS_COMPUTE_64F;
  return dtype == f32 && allows_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasOperation_t operation_of(const Matrices& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// The two numbers of c = alpha a b + beta c, in the type that is computed in.
struct Factors {
  float single[2];
  double twice[2];
  DType dtype;
  Factors(DType dtype, bool add) : single{1, add ? 1.0F : 0.0F}, twice{1, add ? 1.0 : 0.0}, dtype(dtype) {}
  const void* alpha() const { return dtype == f64 ? static_cast<const void*>(twice) : single; }
  const void* beta() const { return dtype == f64 ? static_cast<const void*>(twice + 1) : single + 1; }
};

// The largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

}  // namespace

// How cuBLASLt does the products of one form.
struct Blas::Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, c;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  // none: it cannot
};

Blas::Blas(cudaStream_t stream, CachingAllocator& allocator)
    : stream_(stream), allocator_(allocator), workspace_(allocator.allocate(kWorkspace)) {
  cublasHandle_t handle = nullptr;
  HALFGRAD_CUBLAS(cublasCreate(&handle));
  handle_.reset(handle);
  HALFGRAD_CUBLAS(cublasSetStream(handle, stream));
  HALFGRAD_CUBLAS(cublasSetWorkspace(handle, workspace_, kWorkspace));  // after the stream, which takes it away
  // No tensor cores for f32, and sums that are split among blocks stay in f32 until all is added.
  HALFGRAD_CUBLAS(cublasSetMathMode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  cublasLtHandle_t lt = nullptr;
  HALFGRAD_CUBLAS(cublasLtCreate(&lt));
  lt_.reset(lt);
}

Blas::~Blas() { allocator_.deallocate(workspace_, kWorkspace); }

void Blas::multiply(const Product& p, bool add) {
  const Factors factors(p.dtype, add);
  const cudaDataType_t type = type_of(p.dtype);
  const cublasComputeType_t compute = compute_type_of(p.dtype);
  const std::lock_guard lock(mutex_);
  if (p.count == 1) {
    HALFGRAD_CUBLAS(cublasGemmEx_64(handle_.get(), operation_of(p.b), operation_of(p.a), p.n, p.m, p.k, factors.alpha(),
                                    p.b.data, type, p.b.ld, p.a.data, type, p.a.ld, factors.beta(), p.c.data, type,
                                    p.c.ld, compute, CUBLAS_GEMM_DEFAULT));
  } else {
    HALFGRAD_CUBLAS(cublasGemmStridedBatchedEx_64(handle_.get(), operation_of(p.b), operation_of(p.a), p.n, p.m, p.k,
                                                  factors.alpha(), p.b.data, type, p.b.ld, p.b.step, p.a.data, type,
                                                  p.a.ld, p.a.step, factors.beta(), p.c.data, type, p.c.ld, p.c.step,
                                                  p.count, compute, CUBLAS_GEMM_DEFAULT));
  }
}

// --- with bias and activation ----------------------------------------------------------------------------------------

// All that the choice of an algorithm depends on.
Blas::Key Blas::key_of(const Product& p, const void* bias, Activation activation) {
  return {static_cast<std::int64_t>(p.dtype),
          p.m,
          p.n,
          p.k,
          p.count,
          p.a.ld,
          p.a.step,
          p.a.transposed,
          p.b.ld,
          p.b.step,
          p.b.transposed,
          p.c.ld,
          p.c.step,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.c.data),
          bias == nullptr ? 0 : alignment_of(bias),
          static_cast<std::int64_t>(activation)};
}

namespace {

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  HALFGRAD_CUBLAS(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  HALFGRAD_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  HALFGRAD_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}

cublasLtEpilogue_t epilogue_of(const void* bias, Activation activation) {
  if (activation == Activation::none) return bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
  return bias == nullptr ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_RELU_BIAS;
}

// The layout of matrices that are rows x columns in rows, for a library that sees columns.
cublasLtMatrixLayout_t layout_of(DType dtype, const Matrices& x, std::int64_t rows, std::int64_t columns,
                                 std::int64_t count) {
  if (x.transposed) std::swap(rows, columns);
  cublasLtMatrixLayout_t layout = nullptr;
  HALFGRAD_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), x.ld));
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.step);
  return layout;
}

}  // namespace

// To cuBLASLt c' has n rows, and a bias is a number for each row.
Blas::Plan Blas::make_plan(const Product& p, const void* bias, Activation activation) {
  Plan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  HALFGRAD_CUBLAS(
      cublasLtMatmulDescCreate(&operation, compute_type_of(p.dtype), p.dtype == f64 ? CUDA_R_64F : CUDA_R_32F));
  plan.operation.reset(operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(p.b));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(p.a));
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(bias, activation));
  if (bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  plan.a.reset(layout_of(p.dtype, p.b, p.k, p.n, p.count));
  plan.b.reset(layout_of(p.dtype, p.a, p.m, p.k, p.count));
  plan.c.reset(layout_of(p.dtype, p.c, p.m, p.n, p.count));

  cublasLtMatmulPreference_t preference = nullptr;
  HALFGRAD_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  // Sums that are split among blocks are added in f32.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c.data));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      lt_.get(), operation, plan.a.get(), plan.b.get(), plan.c.get(), plan.c.get(), preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_call(status, "cublasLtMatmulAlgoGetHeuristic");
  if (status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS) plan.algorithm = best.algo;
  return plan;
}

bool Blas::multiply_and_finish(const Product& p, const void* bias, Activation activation) {
  if (p.count > INT32_MAX) return false;
  const std::lock_guard lock(mutex_);
  const Key key = key_of(p, bias, activation);
  auto known = plans_.find(key);
  if (known == plans_.end()) known = plans_.emplace(key, make_plan(p, bias, activation)).first;
  Plan& plan = known->second;
  if (!plan.algorithm) return false;
  const Factors factors(p.dtype, false);
  if (bias != nullptr) set(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const cublasStatus_t status = cublasLtMatmul(lt_.get(), plan.operation.get(), factors.alpha(), p.b.data, plan.a.get(),
                                               p.a.data, plan.b.get(), factors.beta(), p.c.data, plan.c.get(), p.c.data,
                                               plan.c.get(), &*plan.algorithm, workspace_, kWorkspace, stream_);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    plan.algorithm.reset();
  else
    check_call(status, "cublasLtMatmul");
  return plan.algorithm.has_value();
}

}  // namespace halfgrad::cuda
