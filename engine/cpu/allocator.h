#pragma once
// A training step allocates the same sizes over and over: blocks that come back are kept, by size class, and handed out
// again without a system call.

#include <map>
#include <mutex>
#include <vector>

#include "engine/storage.h"

namespace halfgrad::cpu {

class CachingAllocator final : public Allocator {
 public:
  ~CachingAllocator() override;
  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;

 private:
  void release_cache();  // with the mutex held

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // size class -> blocks
  MemoryStats stats_;
};

}  // namespace halfgrad::cpu
