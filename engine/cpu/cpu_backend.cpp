#include "engine/cpu/cpu_backend.h"

#include "engine/cpu/allocator.h"

namespace halfgrad {

Allocator& CpuBackend::allocator() {
  // Never destroyed: tensors in static variables of a program may outlive everything here.
  static auto* allocator = new cpu::CachingAllocator;
  return *allocator;
}

namespace cpu {
Backend& backend() {
  static CpuBackend instance;
  return instance;
}
}  // namespace cpu

}  // namespace halfgrad
