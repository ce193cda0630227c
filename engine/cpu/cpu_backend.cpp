#include "engine/cpu/cpu_backend.h"

#include <vector>

#include "engine/cpu/allocator.h"
#include "engine/error.h"

namespace halfgrad {

Allocator& CpuBackend::allocator() {
  // Never destroyed: tensors in static variables of a program may outlive everything here.
  static auto* allocator = new cpu::CachingAllocator;
  return *allocator;
}

std::unique_ptr<Download> CpuBackend::download(const void* from, std::size_t bytes) {
  struct Copy final : Download {
    std::vector<char> bytes;
    bool is_there() override { return true; }
    const void* wait() override { return bytes.data(); }
  };
  auto copy = std::make_unique<Copy>();
  const char* const begin = static_cast<const char*>(from);
  copy->bytes.assign(begin, begin + bytes);
  return copy;
}

std::unique_ptr<CapturedWork> CpuBackend::capture(const std::function<void()>&, std::uint64_t) {
  fail("capture: the device is cpu, which has no graphs; run the work as it is, or move it to a GPU");
}

namespace cpu {
Backend& backend() {
  static CpuBackend instance;
  return instance;
}
}  // namespace cpu

}  // namespace halfgrad
