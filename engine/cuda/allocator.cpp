#include "engine/cuda/allocator.h"

#include <algorithm>

#include "engine/error.h"

namespace halfgrad::cuda {

CachingAllocator::CachingAllocator(int device, cudaStream_t stream, Mode mode)
    : device_(device), stream_(stream), mode_(mode) {}

CachingAllocator::~CachingAllocator() {
  const std::lock_guard lock(mutex_);
  release_cache();
}

void* CachingAllocator::allocate(std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  const std::size_t size = mode_ == Mode::pass_through ? bytes : size_class(bytes, 512);
  const std::lock_guard lock(mutex_);
  use_device(device_);
  if (pool_ == 0) keep_those_that_waited();
  void* address = nullptr;
  if (auto it = free_.find({pool_, stream, size}); mode_ == Mode::caching && it != free_.end() && !it->second.empty()) {
    address = *it->second.begin();
    it->second.erase(it->second.begin());
    stats_.cached -= size;
  } else {
    address = new_block(bytes, size);
  }
  live_.emplace(address, Block{size, stream, pool_, {}});
  ++stats_.requests;
  stats_.live += size;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return address;
}

void* CachingAllocator::new_block(std::size_t bytes, std::size_t size) {
  ++stats_.system_calls;
  void* address = nullptr;
  cudaError_t status = cudaMalloc(&address, size);
  const std::size_t cached = stats_.cached;
  if (status == cudaErrorMemoryAllocation && pool_ == 0) {
    cudaGetLastError();
    release_cache();
    status = cudaMalloc(&address, size);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    HALFGRAD_CUDA(cudaMemGetInfo(&free, &total));
    fail(
        "out of memory on cuda:{}: asked for {} bytes with {} bytes live, after {} cached bytes were given back; {} of "
        "the GPU's {} bytes are free; use a smaller batch or model",
        device_, bytes, stats_.live, cached, free, total);
  }
  check_call(status, "cudaMalloc(&address, size)");
  return address;
}

void CachingAllocator::deallocate(void* address, std::size_t) noexcept {
  if (!address) return;
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(address);
  if (it == live_.end()) return;
  const Block block = std::move(it->second);
  live_.erase(it);
  stats_.live -= block.size;
  if (mode_ == Mode::pass_through && block.pool == 0) return release(address);
  stats_.cached += block.size;
  if (block.other_streams.empty()) return keep(address, block);
  Waiting waiting{address, block, {}};
  try {
    use_device(device_);
    for (cudaStream_t stream : block.other_streams) waiting.events.emplace_back().record(stream);
  } catch (const Error&) {
    // The program is ending and CUDA with it, or CUDA is broken: nobody will ask for this block.
    return;
  }
  waiting_.push_back(std::move(waiting));
}

int CachingAllocator::begin_pool() {
  const std::lock_guard lock(mutex_);
  check(pool_ == 0, "cuda: begin_pool: pool {} has begun and not ended", pool_);
  return pool_ = ++pools_;
}

void CachingAllocator::end_pool() {
  const std::lock_guard lock(mutex_);
  pool_ = 0;
}

void CachingAllocator::release_pool(int pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [address, block] : live_)
    if (block.pool == pool) block.pool = 0;
  for (Waiting& waiting : waiting_)
    if (waiting.block.pool == pool) waiting.block.pool = 0;
  for (auto it = free_.lower_bound({pool, nullptr, 0}); it != free_.end() && std::get<0>(it->first) == pool;) {
    const auto [of_pool, stream, size] = it->first;
    for (void* address : it->second) {
      if (mode_ == Mode::caching) {
        free_[{0, stream, size}].insert(address);
      } else {
        release(address);
        stats_.cached -= size;
      }
    }
    it = free_.erase(it);
  }
}

cudaStream_t CachingAllocator::stream_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(const_cast<void*>(address));
  return it == live_.end() ? nullptr : it->second.stream;
}

void CachingAllocator::used_on(void* address, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(address);
  check(it != live_.end(), "cuda: used_on: {} is no block of this allocator", address);
  if (stream != it->second.stream) it->second.other_streams.insert(stream);
}

void CachingAllocator::keep(void* address, const Block& block) {
  free_[{block.pool, block.stream, block.size}].insert(address);
}

void CachingAllocator::keep_those_that_waited() {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    if (!std::all_of(waiting.events.begin(), waiting.events.end(), [](const Event& e) { return e.passed(); }))
      return false;
    keep(waiting.address, waiting.block);
    return true;
  });
}

void CachingAllocator::release_cache() {
  for (const Waiting& waiting : waiting_) keep(waiting.address, waiting.block);  // cudaFree waits for the GPU itself
  waiting_.clear();
  for (auto& [key, blocks] : free_) {
    const auto& [pool, stream, size] = key;
    if (pool != 0) continue;  // a graph uses it
    for (void* address : blocks) {
      release(address);
      stats_.cached -= size;
    }
    blocks.clear();
  }
}

void CachingAllocator::release(void* address) noexcept {
  // At the end of the program CUDA may be gone before the last tensor; the memory is, too.
  cudaSetDevice(device_);
  if (cudaFree(address) != cudaSuccess) cudaGetLastError();
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
}

void CachingAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  release_cache();
}

}  // namespace halfgrad::cuda
