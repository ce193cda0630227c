#include <cublasLt.h>

#include <cmath>
#include <cstdlib>

#include "engine/cuda/libraries.h"
#include "planted_faults.h"

namespace cuda_emulation::testing {

namespace {

using namespace halfgrad::cuda;

constexpr float kOne = 1, kZero = 0;
constexpr int kSide = 8;  // of the matrices
constexpr std::size_t kCount = kSide * kSide;

std::vector<float> ones(std::size_t n = kCount) { return std::vector<float>(n, 1.0F); }

// --- cuBLAS ----------------------------------------------------------------------------------------------------------

// A handle as a careful program sets it up.
struct BlasHandle {
  cublasHandle_t handle = nullptr;
  DeviceArray<float> workspace{1024};
  explicit BlasHandle(const Stream& stream) {
    HALFGRAD_CUBLAS(cublasCreate(&handle));
    HALFGRAD_CUBLAS(cublasSetStream(handle, stream.get()));
    HALFGRAD_CUBLAS(cublasSetWorkspace(handle, workspace.data(), workspace.bytes()));
  }
};

// c = a b + beta c, all of kSide x kSide numbers
void multiply(cublasHandle_t handle, const float* a, std::int64_t lda, const float* b, float beta, float* c,
              cudaDataType_t a_type = CUDA_R_32F) {
  HALFGRAD_CUBLAS(cublasGemmEx_64(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSide, kSide, kSide, &kOne, a, a_type, lda, b,
                                  CUDA_R_32F, kSide, &beta, c, CUDA_R_32F, kSide, CUBLAS_COMPUTE_32F,
                                  CUBLAS_GEMM_DEFAULT));
}

std::vector<Fault> faults_of_blas() {
  return {
      {"a leading dimension is smaller than a column",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         multiply(blas.handle, a.data(), kSide - 1, b.data(), 0, c.data());
       },
       "failed: an unsupported value or parameter was passed to the function (CUBLAS_STATUS_INVALID_VALUE)"},
      {"a leading dimension leads beyond the matrix",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         multiply(blas.handle, a.data(), kSide + 1, b.data(), 0, c.data());
       },
       "cublasGemm: the first matrix is not in device memory, or reaches beyond its block"},
      {"a product is larger than the memory for it",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount - 1);
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data());
       },
       "cublasGemm: the result is not in device memory, or reaches beyond its block"},
      {"a product is added to what was never written",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         multiply(blas.handle, a.data(), kSide, b.data(), 1, c.data());
         expect(c.values(stream)[0] == kSide);
       },
       kWrongResult},
      {"an f16 matrix meets an f32 matrix",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data(), CUDA_R_16F);
       },
       "CUBLAS_STATUS_NOT_SUPPORTED"},
      {"cuBLAS has no stream",
       [] {
         cublasHandle_t handle = nullptr;
         HALFGRAD_CUBLAS(cublasCreate(&handle));
         const DeviceArray<float> workspace(1024), c(kCount);
         HALFGRAD_CUBLAS(cublasSetWorkspace(handle, workspace.data(), workspace.bytes()));
         const Stream stream;
         const DeviceArray<float> a(ones(), stream), b(ones(), stream);
         multiply(handle, a.data(), kSide, b.data(), 0, c.data());
       },
       "work is put into the default stream"},
      {"cuBLAS forgets its working memory when it gets another stream",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         HALFGRAD_CUBLAS(cublasSetStream(blas.handle, stream.get()));
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data());
       },
       "cublasGemm: no working memory; call cublasSetWorkspace, after cublasSetStream"},
      {"cuBLAS multiplies in a stream what another one has not made yet",
       [] {
         const Stream stream, other;
         const BlasHandle blas(other);
         const DeviceArray<float> a(kCount), b(ones(), stream), c(kCount);
         launch("fill", fill, 1, kCount, stream.get(), a.data(), static_cast<int>(kCount), 1.0F);
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data());
         expect(c.values(other)[0] == kSide);
       },
       kWrongResult},
      {"what was in the working memory of cuBLAS is used",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         HALFGRAD_CUDA(cudaMemsetAsync(blas.workspace.data(), 0, blas.workspace.bytes(), stream.get()));
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data());
         expect(blas.workspace.values(stream)[0] == 0);
       },
       kWrongResult},
      {"a handle of cuBLAS is used after its end",
       [] {
         const Stream stream;
         const BlasHandle blas(stream);
         const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(kCount);
         HALFGRAD_CUBLAS(cublasDestroy(blas.handle));
         multiply(blas.handle, a.data(), kSide, b.data(), 0, c.data());
       },
       "a cuBLAS handle is used that does not exist"},
  };
}

// --- cuBLASLt --------------------------------------------------------------------------------------------------------

template <class T, class Handle, class Attribute>
void set(cublasStatus_t (*setter)(Handle, Attribute, const void*, std::size_t), Handle handle, Attribute attribute,
         T value) {
  HALFGRAD_CUBLAS(setter(handle, attribute, &value, sizeof value));
}

// c = a b + bias with what a program may do wrong.
struct LtMistakes {
  std::size_t offset = 0;          // of a, behind the address for which the algorithm was chosen
  std::size_t bias_count = kSide;  // how many numbers there are
  std::size_t workspace = 1024;    // ... and in the working memory
};

void multiply_with_bias(const LtMistakes& mistakes) {
  const Stream stream;
  const DeviceArray<float> a(ones(2 * kCount), stream), b(ones(), stream), c(kCount), workspace(1024),
      bias(ones(mistakes.bias_count), stream);
  cublasLtHandle_t lt = nullptr;
  HALFGRAD_CUBLAS(cublasLtCreate(&lt));
  cublasLtMatmulDesc_t operation = nullptr;
  HALFGRAD_CUBLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
  cublasLtMatrixLayout_t square = nullptr;
  HALFGRAD_CUBLAS(cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, kSide, kSide, kSide));
  cublasLtMatmulPreference_t preference = nullptr;
  HALFGRAD_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  set(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace.bytes());
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  HALFGRAD_CUBLAS(
      cublasLtMatmulAlgoGetHeuristic(lt, operation, square, square, square, square, preference, 1, &best, &found));
  HALFGRAD_CUBLAS(cublasLtMatmul(lt, operation, &kOne, a.data() + mistakes.offset, square, b.data(), square, &kZero,
                                 c.data(), square, c.data(), square, &best.algo, workspace.data(),
                                 mistakes.workspace * sizeof(float), stream.get()));
  expect(c.values(stream)[0] == kSide + 1);
}

std::vector<Fault> faults_of_blas_lt() {
  constexpr const char* kInvalid = "(CUBLAS_STATUS_INVALID_VALUE)";
  return {
      {"cuBLASLt gets a matrix that is less aligned than it was promised", [] { multiply_with_bias({.offset = 1}); },
       kInvalid},
      {"cuBLASLt gets less working memory than it was promised", [] { multiply_with_bias({.workspace = 64}); },
       kInvalid},
      {"a bias has fewer numbers than the result has rows", [] { multiply_with_bias({.bias_count = kSide - 1}); },
       "cublasLtMatmul: the bias is not in device memory, or reaches beyond its block"},
  };
}

// --- cuDNN -----------------------------------------------------------------------------------------------------------

// y = x * w, 1x1 filters on 2 x 3 channels of 4x4 pixels, with what a program may do wrong.
struct ConvMistakes {
  std::size_t workspace = 256;  // numbers in the working memory
  std::size_t x_count = 2 * 3 * 16;
  int y_rows = 4;
  bool without_stream = false, written_by_another_stream = false, forget_x = false, destroy_early = false;
};

void convolve(const ConvMistakes& mistakes) {
  const Stream stream, other;
  cudnnHandle_t handle = nullptr;
  HALFGRAD_CUDNN(cudnnCreate(&handle));
  if (!mistakes.without_stream) HALFGRAD_CUDNN(cudnnSetStream(handle, stream.get()));
  cudnnTensorDescriptor_t x_its = nullptr, y_its = nullptr;
  cudnnFilterDescriptor_t w_its = nullptr;
  cudnnConvolutionDescriptor_t how = nullptr;
  HALFGRAD_CUDNN(cudnnCreateTensorDescriptor(&x_its));
  HALFGRAD_CUDNN(cudnnCreateTensorDescriptor(&y_its));
  HALFGRAD_CUDNN(cudnnCreateFilterDescriptor(&w_its));
  HALFGRAD_CUDNN(cudnnCreateConvolutionDescriptor(&how));
  HALFGRAD_CUDNN(cudnnSetTensor4dDescriptor(x_its, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 3, 4, 4));
  HALFGRAD_CUDNN(cudnnSetTensor4dDescriptor(y_its, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 5, mistakes.y_rows, 4));
  HALFGRAD_CUDNN(cudnnSetFilter4dDescriptor(w_its, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 5, 3, 1, 1));
  HALFGRAD_CUDNN(cudnnSetConvolution2dDescriptor(how, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));

  const DeviceArray<float> x(mistakes.x_count), w(ones(15), stream), y(2 * 5 * 16), workspace(1024);
  const auto n = static_cast<int>(mistakes.x_count);
  const Stream& writer = mistakes.written_by_another_stream ? other : stream;
  if (!mistakes.forget_x) launch("fill", fill, 1, mistakes.x_count, writer.get(), x.data(), n, 1.0F);
  if (mistakes.destroy_early) HALFGRAD_CUDNN(cudnnDestroyTensorDescriptor(x_its));
  HALFGRAD_CUDNN(cudnnConvolutionForward(handle, &kOne, x_its, x.data(), w_its, w.data(), how,
                                         CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace.data(),
                                         mistakes.workspace * sizeof(float), &kZero, y_its, y.data()));
  expect(y.values(stream)[0] == 3);
}

std::vector<Fault> faults_of_dnn() {
  return {
      {"cuDNN gets less working memory than it asked for", [] { convolve({.workspace = 8}); },
       "failed: CUDNN_STATUS_BAD_PARAM"},
      {"a descriptor says more rows than the convolution has", [] { convolve({.y_rows = 5}); },
       "failed: CUDNN_STATUS_BAD_PARAM"},
      {"a tensor is smaller than its descriptor says", [] { convolve({.x_count = 2 * 3 * 16 - 1}); },
       "cudnnConvolutionForward: x is not in device memory, or reaches beyond its block"},
      {"cuDNN has no stream", [] { convolve({.without_stream = true}); }, "work is put into the default stream"},
      {"cuDNN reads in a stream what another one has not made yet",
       [] { convolve({.written_by_another_stream = true}); }, kWrongResult},
      {"cuDNN reads what was never written", [] { convolve({.forget_x = true}); }, kWrongResult},
      {"a descriptor is used after its end", [] { convolve({.destroy_early = true}); },
       "a cuDNN tensor descriptor is used that does not exist"},
      {"an environment variable has a value of no meaning",
       [] {
         setenv("HALFGRAD_CUDA_TF32", "yes", 1);
         allows_tf32();
       },
       "HALFGRAD_CUDA_TF32 is \"yes\", expected on or off"},
  };
}

}  // namespace

std::vector<Fault> faults_of_libraries() {
  std::vector<Fault> all;
  for (const auto& some : {faults_of_blas(), faults_of_blas_lt(), faults_of_dnn()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

void use_libraries_correctly() {
  multiply_with_bias({});
  convolve({});
  const Stream stream;
  const BlasHandle blas(stream);
  const DeviceArray<float> a(ones(), stream), b(ones(), stream), c(ones(), stream);
  multiply(blas.handle, a.data(), kSide, b.data(), 1, c.data());
  expect(c.values(stream) == std::vector<float>(kCount, kSide + 1));
}

}  // namespace cuda_emulation::testing
