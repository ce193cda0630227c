#include "engine/cuda/module.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/cuda/config.h"
#include "engine/cuda/cuda.h"
#include "engine/error.h"

namespace halfgrad::cuda {

namespace {

const OpenedModule& opened() {
  static const OpenedModule module = open_module(module_candidates());  // never closed: tensors may outlive everything
  return module;
}

}  // namespace

std::vector<std::string> module_candidates() {
  if (const char* path = std::getenv("HALFGRAD_CUDA_MODULE"); path && *path) return {path};
  if (!HALFGRAD_HAS_CUDA) return {};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return {(program.parent_path() / HALFGRAD_CUDA_MODULE_NAME).string(), HALFGRAD_CUDA_MODULE_NAME,
          HALFGRAD_LIBDIR "/" HALFGRAD_CUDA_MODULE_NAME};
}

OpenedModule open_module(const std::vector<std::string>& candidates) {
  std::string failures;
  for (const std::string& file : candidates) {
    if (!failures.empty()) failures += "; ";
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      failures += dlerror();
      continue;
    }
    const auto* const module = static_cast<const Module*>(dlsym(handle, kModuleSymbol));
    if (module && std::strcmp(module->version, HALFGRAD_VERSION) == 0) return {module, ""};
    failures += module ? fmt::format("{}: is of halfgrad {}, expected {}", file, module->version, HALFGRAD_VERSION)
                       : fmt::format("{}: is no CUDA module of halfgrad", file);
    dlclose(handle);
  }
  return {nullptr, failures};
}

std::string why_unavailable(int index) {
  const OpenedModule& m = opened();
  if (!m.module && m.failures.empty()) return "this build of halfgrad has no CUDA backend";
  if (!m.module)
    return fmt::format("the CUDA backend could not be opened (HALFGRAD_CUDA_MODULE names its file): {}", m.failures);
  std::string why_none;
  const int count = m.module->gpus(why_none);
  if (count == 0) return fmt::format("no GPU was found: {}", why_none);
  if (index < 0 || index >= count)
    return fmt::format("there is no such GPU, expected an index from 0 to {}", count - 1);
  return "";
}

Backend& backend(int index) {
  static std::array<std::atomic<Backend*>, 64> known{};  // every op asks
  const auto at = static_cast<std::size_t>(index);
  if (at < known.size())
    if (Backend* backend = known[at].load(std::memory_order_acquire)) return *backend;
  const std::string missing = why_unavailable(index);
  if (!missing.empty()) fail("cuda:{}: {}; use the device cpu", index, missing);
  Backend& backend = opened().module->backend(index);
  if (at < known.size()) known[at].store(&backend, std::memory_order_release);
  return backend;
}

}  // namespace halfgrad::cuda
