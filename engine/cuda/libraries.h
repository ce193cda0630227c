#pragma once
// What cuBLAS, cuBLASLt and cuDNN have in common: failures as Errors, handles that are owned, and how exact f32 is.

#include <cublas_v2.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

/// Call a library and throw Error, which names the call, unless it succeeds.
#define HALFGRAD_CUBLAS(call) ::halfgrad::cuda::check_call(call, #call)
#define HALFGRAD_CUDNN(call) ::halfgrad::cuda::check_call(call, #call)

namespace halfgrad::cuda {

[[noreturn]] void fail_call(cublasStatus_t status, const char* call);
[[noreturn]] void fail_call(cudnnStatus_t status, const char* call);
inline void check_call(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail_call(status, call);
}
inline void check_call(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail_call(status, call);
}

/// Destroys what it points to with the library's function: `Owned<cudnnHandle_t, cudnnDestroy>`.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

/// Products and convolutions of f32 are computed in f32. The environment variable HALFGRAD_CUDA_TF32=on lets tensor cores
/// do them, several times as fast, after rounding each operand to the 11 significant bits of a half. f16 is not concerned.
bool allows_tf32();

}  // namespace halfgrad::cuda
