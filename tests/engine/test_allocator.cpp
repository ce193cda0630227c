#include <doctest/doctest.h>

#include <cstdint>
#include <thread>

#include "engine/cpu/allocator.h"
#include "engine/ops/elementwise.h"
#include "engine/tensor.h"

using namespace halfgrad;
using cpu::CachingAllocator;

TEST_CASE("size classes waste at most a quarter and hold what was asked") {
  for (std::size_t unit : {64, 512})  // of the CPU's allocator and of the GPU's
    for (std::size_t n : {1, 63, 64, 65, 2047, 2048, 2049, 5000, 65536, 65537, 1000003}) {
      const std::size_t size = size_class(n, unit);
      CHECK(size >= n);
      CHECK(size % unit == 0);
      if (n > 2048) CHECK(size <= n + n / 4 + 1);
      CHECK(size_class(size, unit) == size);
    }
}

TEST_CASE("a freed block serves the next request of its class without the system") {
  CachingAllocator allocator;
  void* a = allocator.allocate(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 64 == 0);
  CHECK(allocator.stats().live == 1024);
  allocator.deallocate(a, 1000);
  CHECK(allocator.stats().live == 0);
  CHECK(allocator.stats().cached == 1024);
  void* b = allocator.allocate(1010);
  CHECK(a == b);
  CHECK(allocator.stats().system_calls == 1);
  CHECK(allocator.stats().requests == 2);
  CHECK(allocator.stats().peak == 1024);
  allocator.deallocate(b, 1010);
  allocator.empty_cache();
  CHECK(allocator.stats().cached == 0);
  CHECK(allocator.allocate(0) == nullptr);
  allocator.deallocate(nullptr, 0);
}

TEST_CASE("an impossible request is an error that says what was asked") {
  CachingAllocator allocator;
  CHECK_THROWS_WITH_AS(allocator.allocate(std::size_t{1} << 60),
                       doctest::Contains("asked for 1152921504606846976 bytes"), Error);
}

TEST_CASE("tensors give their memory back") {
  const MemoryStats before = memory_stats();
  {
    Tensor x = zeros({1000});
    CHECK(memory_stats().live >= before.live + 4000);
  }
  CHECK(memory_stats().live == before.live);
}

TEST_CASE("a loop over the same shapes asks the system for nothing after the first round") {
  const auto step = [] {
    Tensor x = ones({64, 100}, f16).requires_grad_();
    Tensor y = tanh(x * x + 1);
    y.backward(ones_like(y));
  };
  step();
  step();
  const auto before = memory_stats().system_calls;
  for (int i = 0; i < 10; ++i) step();
  CHECK(memory_stats().system_calls == before);
}

TEST_CASE("threads may allocate at once") {
  CachingAllocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 1; i < 500; ++i) allocator.deallocate(allocator.allocate(i * 7), i * 7);
    });
  for (auto& thread : threads) thread.join();
  CHECK(allocator.stats().live == 0);
}
