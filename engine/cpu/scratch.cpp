#include "engine/cpu/scratch.h"

#include <cstdlib>
#include <utility>

#include "engine/error.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace halfgrad::cpu {
namespace {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// The blocks that a thread has at hand.
struct Cache {
  static constexpr int kSize = 6;
  Block blocks[kSize];
  ~Cache() {
    for (const Block& block : blocks) std::free(block.data);
  }
};
thread_local Cache cache;

constexpr std::size_t kHugePage = std::size_t{2} << 20;

Block allocate(std::size_t bytes) {
  // Large blocks ask for huge pages: packed matrices are read with strides that would miss the TLB otherwise.
  const std::size_t alignment = bytes > kHugePage / 2 ? kHugePage : 4096;
  bytes = (bytes + bytes / 8 + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, bytes);
  check(data != nullptr, "out of memory: {} bytes of scratch memory for a CPU kernel", bytes);
#if defined(__linux__)
  if (alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return {data, bytes};
}

}  // namespace

Scratch::Scratch(std::size_t bytes) {
  if (bytes == 0) return;
  // The smallest block that is large enough.
  Block* best = nullptr;
  for (Block& block : cache.blocks)
    if (block.bytes >= bytes && (best == nullptr || block.bytes < best->bytes)) best = &block;
  const Block block = best != nullptr ? std::exchange(*best, Block{}) : allocate(bytes);
  data_ = block.data;
  bytes_ = block.bytes;
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  // Takes the place of the smallest block if there is no empty one: the large ones are dear.
  Block* smallest = &cache.blocks[0];
  for (Block& block : cache.blocks)
    if (block.bytes < smallest->bytes) smallest = &block;
  Block mine{data_, bytes_};
  if (smallest->bytes < mine.bytes) std::swap(*smallest, mine);
  std::free(mine.data);
}

}  // namespace halfgrad::cpu
