// What the module shows to the program that opens it.

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "engine/cuda/config.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/module.h"
#include "engine/error.h"

namespace halfgrad::cuda {

namespace {

int count_gpus(std::string& why_none) {
  const Gpus gpus = find_gpus();
  why_none = gpus.why_none;
  return gpus.count;
}

CachingAllocator::Mode allocator_mode() {
  const char* value = std::getenv("HALFGRAD_CUDA_CACHE");
  const std::string_view cache = value ? value : "";
  check(cache.empty() || cache == "on" || cache == "off", "HALFGRAD_CUDA_CACHE is \"{}\", expected on or off", cache);
  return cache == "off" ? CachingAllocator::Mode::pass_through : CachingAllocator::Mode::caching;
}

Backend& backend_of(int index) {
  // Never destroyed: tensors in static variables of a program may outlive everything here.
  static std::mutex mutex;
  static auto* const backends = new std::map<int, CudaBackend*>;
  const std::lock_guard lock(mutex);
  CudaBackend*& backend = (*backends)[index];
  if (!backend) backend = new CudaBackend(index, allocator_mode());
  return *backend;
}

}  // namespace

}  // namespace halfgrad::cuda

extern "C" {
[[gnu::visibility("default")]] extern const halfgrad::cuda::Module halfgrad_cuda_module;
const halfgrad::cuda::Module halfgrad_cuda_module = {HALFGRAD_VERSION, halfgrad::cuda::count_gpus,
                                                     halfgrad::cuda::backend_of};
}
