// The allocator of GPU memory: what is handed out again, to whom, and when.

#include <doctest/doctest.h>

#include <thread>

#include "device_array.h"
#include "engine/cuda/allocator.h"
#include "engine/error.h"

using namespace cuda_emulation::testing;
using halfgrad::Error;
using halfgrad::MemoryStats;
using halfgrad::cuda::CachingAllocator;

TEST_CASE("a returned block serves the next request of its class, and is counted") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get());
  void* a = allocator.allocate(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
  CHECK(allocator.stats().live == 1024);
  allocator.deallocate(a, 1000);
  CHECK(allocator.stats().live == 0);
  CHECK(allocator.stats().cached == 1024);
  void* b = allocator.allocate(1010);
  CHECK(b == a);
  const MemoryStats stats = allocator.stats();
  CHECK(stats.requests == 2);
  CHECK(stats.system_calls == 1);
  CHECK(stats.peak == 1024);
  CHECK(stats.cached == 0);
  allocator.deallocate(b, 1010);
  allocator.empty_cache();
  CHECK(allocator.stats().cached == 0);
  allocator.reset_peak();
  CHECK(allocator.stats().peak == 0);
  CHECK(allocator.allocate(0) == nullptr);
  allocator.deallocate(nullptr, 0);
  CHECK(allocator.stats().requests == 2);
}

TEST_CASE("the lowest free address is handed out, so that a step repeats its addresses") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get());
  const auto step = [&] {
    std::vector<void*> addresses;
    void* x = allocator.allocate(70000);
    void* y = allocator.allocate(70000);
    allocator.deallocate(x, 70000);
    void* z = allocator.allocate(69000);
    void* w = allocator.allocate(100);
    allocator.deallocate(y, 70000);
    allocator.deallocate(z, 69000);
    allocator.deallocate(w, 100);
    return std::vector<void*>{x, y, z, w};
  };
  step();
  const auto second = step();
  const auto system_calls = allocator.stats().system_calls;
  for (int i = 0; i < 5; ++i) CHECK(step() == second);
  CHECK(allocator.stats().system_calls == system_calls);

  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(allocator.allocate(4096));
  for (int i : {3, 0, 4, 1, 2}) allocator.deallocate(blocks[static_cast<std::size_t>(i)], 4096);
  std::sort(blocks.begin(), blocks.end());
  for (void* block : blocks) CHECK(allocator.allocate(4096) == block);
  for (void* block : blocks) allocator.deallocate(block, 4096);
}

TEST_CASE("a block stays with its stream") {
  const Stream one, two;
  CachingAllocator allocator(0, one.get());
  void* a = allocator.allocate(512);
  allocator.deallocate(a, 512);
  void* b = allocator.allocate(512, two.get());
  CHECK(b != a);
  CHECK(allocator.allocate(512) == a);
  allocator.deallocate(b, 512);
  CHECK(allocator.allocate(512) != b);
  CHECK(allocator.allocate(512, two.get()) == b);
}

TEST_CASE("a block that a second stream has used waits for that stream") {
  const Stream one, two;
  CachingAllocator allocator(0, one.get());
  void* a = allocator.allocate(512);
  allocator.used_on(a, one.get());  // its own: nothing to wait for
  allocator.deallocate(a, 512);
  CHECK(allocator.allocate(512) == a);

  allocator.used_on(a, two.get());
  HALFGRAD_CUDA(cudaMemsetAsync(a, 0, 512, two.get()));
  allocator.deallocate(a, 512);
  CHECK(allocator.stats().cached == 512);  // it is nobody's, but not free yet
  void* b = allocator.allocate(512);
  CHECK(b != a);
  two.synchronize();
  CHECK(allocator.allocate(512) == a);
  // Waiting blocks are given back, too.
  allocator.used_on(a, two.get());
  HALFGRAD_CUDA(cudaMemsetAsync(a, 0, 512, two.get()));
  allocator.deallocate(a, 512);
  allocator.empty_cache();
  CHECK(allocator.stats().cached == 0);
  CHECK_THROWS_WITH_AS(allocator.used_on(a, two.get()), doctest::Contains("is no block of this allocator"), Error);
}

TEST_CASE("when memory is out the cache is given back before it is an Error") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get());
  constexpr std::size_t kLarge = cuda_emulation::kCapacity / 2 + 4096;
  allocator.deallocate(allocator.allocate(kLarge), kLarge);
  CHECK(allocator.stats().cached > 0);
  void* a = allocator.allocate(cuda_emulation::kCapacity / 8 * 5);  // of another class: only one of them fits
  CHECK(allocator.stats().cached == 0);
  allocator.deallocate(allocator.allocate(1000), 1000);
  const std::size_t live = allocator.stats().live;
  try {
    allocator.allocate(kLarge);
    CHECK(false);
  } catch (const Error& error) {
    const std::string expected = fmt::format(
        "out of memory on cuda:0: asked for {} bytes with {} bytes live, after 1024 cached bytes were given back; ",
        kLarge, live);
    CHECK_MESSAGE(std::string(error.what()).starts_with(expected), error.what());
    CHECK(std::string(error.what()).find("use a smaller batch or model") != std::string::npos);
  }
  CHECK(allocator.stats().live == live);
  CHECK(cudaGetLastError() == cudaSuccess);
  allocator.deallocate(a, 1);
}

TEST_CASE("passed through, every block is new, of just its size, and gone when it is returned") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get(), CachingAllocator::Mode::pass_through);
  const std::size_t before = cuda_emulation::bytes_in_use();
  void* a = allocator.allocate(1001);
  CHECK(cuda_emulation::bytes_in_use() == before + 1001);
  CHECK(allocator.stats().live == 1001);
  allocator.deallocate(a, 1001);
  CHECK(cuda_emulation::bytes_in_use() == before);
  CHECK(allocator.stats().cached == 0);
  CHECK(allocator.allocate(1001) != a);
  CHECK(allocator.stats().system_calls == 2);
}

TEST_CASE("threads may allocate at once") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 1; i < 300; ++i) allocator.deallocate(allocator.allocate(i * 70), i * 70);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(allocator.stats().live == 0);
  CHECK(allocator.stats().requests == 4 * 299);
  allocator.empty_cache();
}

TEST_CASE("a pool keeps its blocks for itself until it is released") {
  const Stream stream;
  CachingAllocator allocator(0, stream.get());
  void* before = allocator.allocate(1000);
  allocator.deallocate(before, 1000);

  const int pool = allocator.begin_pool();
  CHECK_THROWS_AS(allocator.begin_pool(), Error);
  void* a = allocator.allocate(1000);
  CHECK(a != before);  // not from the cache, whose blocks others may get
  allocator.deallocate(a, 1000);
  void* b = allocator.allocate(1000);
  CHECK(b == a);  // again within the pool
  void* c = allocator.allocate(1000);
  allocator.end_pool();

  void* outside = allocator.allocate(1000);
  CHECK(outside == before);
  allocator.deallocate(b, 1000);  // afterwards, too, a block returns to its pool
  void* fresh = allocator.allocate(1000);
  CHECK(fresh != b);
  const auto cached = allocator.stats().cached;
  allocator.empty_cache();
  CHECK(allocator.stats().cached == cached);  // what is cached is the pool's

  allocator.release_pool(pool);
  CHECK(allocator.allocate(1000) == b);
  allocator.deallocate(c, 1000);
  CHECK(allocator.allocate(1000) == c);
  CHECK(allocator.begin_pool() != pool);
}
