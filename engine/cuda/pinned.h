#pragma once
// Host memory that a GPU copies from and to by itself ("pinned": it stays where it is in the machine's memory). Making it
// takes long, so blocks are kept and lent again.

#include <map>
#include <mutex>
#include <vector>

#include "engine/cuda/runtime.h"

namespace halfgrad::cuda {

class PinnedPool {
 public:
  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// A block of at least that many bytes. Error when there is no memory.
  void* take(std::size_t bytes);
  /// It is lent again when the work that is in `stream` now is done.
  void give_back(void* block, std::size_t bytes, cudaStream_t stream) noexcept;

 private:
  struct Returned {
    void* block;
    Event used_until;
  };
  std::mutex mutex_;
  std::map<std::size_t, std::vector<Returned>> returned_;  // by size class
};

}  // namespace halfgrad::cuda
