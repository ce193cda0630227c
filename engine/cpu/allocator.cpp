#include "engine/cpu/allocator.h"

#include <algorithm>
#include <cstdlib>

#include "engine/error.h"

// Under AddressSanitizer a cached block and the slack behind a request are poisoned, so that the cache hides no bug.
#if defined(__SANITIZE_ADDRESS__)
#define HALFGRAD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HALFGRAD_ASAN 1
#endif
#endif
#ifdef HALFGRAD_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace halfgrad::cpu {

namespace {
constexpr std::size_t kUnit = 64;  // the alignment of a block
}

void* CachingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = size_class(bytes, kUnit);
  std::lock_guard lock(mutex_);
  void* block = nullptr;
  if (auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
    block = it->second.back();
    it->second.pop_back();
    stats_.cached -= size;
  } else {
    ++stats_.system_calls;
    block = std::aligned_alloc(64, size);
    if (!block) {
      release_cache();
      block = std::aligned_alloc(64, size);
    }
    check(block != nullptr,
          "out of memory on the cpu: asked for {} bytes with {} bytes live; use a smaller batch or model", bytes,
          stats_.live);
  }
  ++stats_.requests;
  stats_.live += size;
  stats_.peak = std::max(stats_.peak, stats_.live);
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, size - bytes);
  return block;
}

void CachingAllocator::deallocate(void* block, std::size_t bytes) noexcept {
  if (!block) return;
  const std::size_t size = size_class(bytes, kUnit);
  std::lock_guard lock(mutex_);
  free_[size].push_back(block);
  stats_.live -= size;
  stats_.cached += size;
  ASAN_POISON_MEMORY_REGION(block, size);
}

MemoryStats CachingAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
}

void CachingAllocator::empty_cache() {
  std::lock_guard lock(mutex_);
  release_cache();
}

void CachingAllocator::release_cache() {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) {
      ASAN_UNPOISON_MEMORY_REGION(block, size);
      std::free(block);
      stats_.cached -= size;
    }
    blocks.clear();
  }
}

CachingAllocator::~CachingAllocator() { release_cache(); }

}  // namespace halfgrad::cpu
