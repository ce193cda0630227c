#include "engine/cuda/libraries.h"

#include <cstdlib>
#include <string_view>

#include "engine/error.h"

namespace halfgrad::cuda {

void fail_call(cublasStatus_t status, const char* call) {
  fail("cuda: {} failed: {} ({})", call, cublasGetStatusString(status), cublasGetStatusName(status));
}

void fail_call(cudnnStatus_t status, const char* call) {
  char details[512] = {};
  cudnnGetLastErrorString(details, sizeof details);
  fail("cuda: {} failed: {}{}{}", call, cudnnGetErrorString(status), details[0] ? ": " : "", details);
}

bool allows_tf32() {
  static const bool allows = [] {
    const char* value = std::getenv("HALFGRAD_CUDA_TF32");
    const std::string_view tf32 = value ? value : "";
    check(tf32.empty() || tf32 == "on" || tf32 == "off", "HALFGRAD_CUDA_TF32 is \"{}\", expected on or off", tf32);
    return tf32 == "on";
  }();
  return allows;
}

}  // namespace halfgrad::cuda
