// A module as engine/cuda/module.h wants it, without a GPU in it. Built with two versions for test_cuda_module.cpp.

#include <cstdlib>

#include "engine/cuda/module.h"

namespace {
int no_gpus(std::string& why_none) {
  why_none = "this is a test";
  return 0;
}
halfgrad::Backend& no_backend(int) { std::abort(); }  // never called
}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const halfgrad::cuda::Module halfgrad_cuda_module;
const halfgrad::cuda::Module halfgrad_cuda_module = {MODULE_VERSION, no_gpus, no_backend};
}
