#include "engine/cuda/pinned.h"

#include "engine/error.h"
#include "engine/storage.h"

namespace halfgrad::cuda {

PinnedPool::~PinnedPool() {
  for (auto& [size, blocks] : returned_)
    for (const Returned& returned : blocks) cudaFreeHost(returned.block);
}

void* PinnedPool::take(std::size_t bytes) {
  const std::size_t size = size_class(bytes, 512);
  const std::lock_guard lock(mutex_);
  std::vector<Returned>& blocks = returned_[size];
  for (auto it = blocks.begin(); it != blocks.end(); ++it)
    if (it->used_until.passed()) {
      void* const block = it->block;
      std::swap(*it, blocks.back());
      blocks.pop_back();
      return block;
    }
  void* block = nullptr;
  const cudaError_t status = cudaMallocHost(&block, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail("cuda: no pinned host memory: asked for {} bytes; use a smaller batch", size);
  }
  check_call(status, "cudaMallocHost(&block, size)");
  return block;
}

void PinnedPool::give_back(void* block, std::size_t bytes, cudaStream_t stream) noexcept {
  try {
    Returned returned{block, Event()};
    returned.used_until.record(stream);
    const std::lock_guard lock(mutex_);
    returned_[size_class(bytes, 512)].push_back(std::move(returned));
  } catch (...) {
    // CUDA is broken, or the program is ending: the block is not lent again, since nobody knows when it is free.
  }
}

}  // namespace halfgrad::cuda
