#pragma once
// GPU memory that is kept and handed out again: cudaMalloc takes long, and cudaFree waits for the whole GPU.
//
// A block belongs to the stream that it was allocated for. It is handed out again as soon as it is returned, although
// kernels may still use it, because the stream runs what uses it next after them. For the same reason a block never moves
// to another stream, and one that a second stream has used as well waits for an event of that stream.
//
// Of the free blocks of a size class, the one with the lowest address is handed out. So a training step that returns what
// it takes gets the same addresses every time.
//
// Memory that a CUDA graph uses must stay as it is between its launches. While one is captured, blocks come from a pool of
// its own, to which they return for good.

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/storage.h"

namespace halfgrad::cuda {

class CachingAllocator final : public Allocator {
 public:
  enum class Mode {
    caching,
    pass_through  ///< every request is a cudaMalloc of just its size, so that tools see each block and its bounds
  };

  /// `stream`: the one that blocks are for when none is named.
  CachingAllocator(int device, cudaStream_t stream, Mode mode = Mode::caching);
  ~CachingAllocator() override;

  void* allocate(std::size_t bytes) override { return allocate(bytes, stream_); }
  /// Throws Error with the asked, live and cached bytes when memory is out, also after the cache was given back.
  void* allocate(std::size_t bytes, cudaStream_t stream);
  void deallocate(void* block, std::size_t bytes) noexcept override;
  /// The stream that the block which begins here is for; null: no block begins here.
  cudaStream_t stream_of(const void* block) const;
  /// From now on blocks are of a new pool, whose number it returns: they are handed out again only until end_pool().
  int begin_pool();
  void end_pool();
  /// The pool's blocks are like others from now on.
  void release_pool(int pool);
  /// Work that was put into `stream` uses the block, too: when it is returned, it is kept until that work is done.
  void used_on(void* block, cudaStream_t stream);

  MemoryStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;

 private:
  struct Block {
    std::size_t size;
    cudaStream_t stream;
    int pool;
    std::set<cudaStream_t> other_streams;  // which have used it
  };
  struct Waiting {  // a returned block that another stream may still use
    void* address;
    Block block;
    std::vector<Event> events;
  };

  // All with the mutex held.
  void* new_block(std::size_t bytes, std::size_t size);
  void keep(void* address, const Block& block);
  void keep_those_that_waited();
  void release_cache();
  void release(void* address) noexcept;

  const int device_;
  const cudaStream_t stream_;
  const Mode mode_;
  mutable std::mutex mutex_;
  int pools_ = 0, pool_ = 0;  // begun so far; the present one, 0 when none is captured
  std::map<std::tuple<int, cudaStream_t, std::size_t>, std::set<void*>> free_;  // (pool, stream, size) -> by address
  std::unordered_map<void*, Block> live_;
  std::vector<Waiting> waiting_;
  MemoryStats stats_;
};

/// Blocks of the same allocator for another stream than its own.
class StreamAllocator final : public Allocator {
 public:
  StreamAllocator(CachingAllocator& all, cudaStream_t stream) : all_(all), stream_(stream) {}
  void* allocate(std::size_t bytes) override { return all_.allocate(bytes, stream_); }
  void deallocate(void* block, std::size_t bytes) noexcept override { all_.deallocate(block, bytes); }
  MemoryStats stats() const override { return all_.stats(); }
  void reset_peak() override { all_.reset_peak(); }
  void empty_cache() override { all_.empty_cache(); }

 private:
  CachingAllocator& all_;
  cudaStream_t stream_;
};

}  // namespace halfgrad::cuda
