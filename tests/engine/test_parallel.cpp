#include "engine/cpu/parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cpu/scratch.h"
#include "engine/error.h"

using namespace halfgrad;

namespace {

struct Threads {  // sets the number of threads for one test
  explicit Threads(int n) { cpu::set_num_threads(n); }
  ~Threads() { cpu::set_num_threads(usual); }
  int usual = cpu::num_threads();
};

}  // namespace

TEST_CASE("parallel_for: the chunks depend on n and grain alone") {
  for (int threads : {1, 2, 4}) {
    const Threads scope(threads);
    CHECK(cpu::num_threads() == threads);
    for (std::int64_t n : {0, 1, 7, 8, 9, 1000, 1001})
      for (std::int64_t grain : {1, 8, 1000, 5000}) {
        std::mutex mutex;
        std::set<std::pair<std::int64_t, std::int64_t>> chunks;
        cpu::parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          const std::lock_guard lock(mutex);
          CHECK(chunks.emplace(begin, end).second);
        });
        std::set<std::pair<std::int64_t, std::int64_t>> expected;
        for (std::int64_t i = 0; i < n; i += grain) expected.emplace(i, std::min(n, i + grain));
        CHECK(chunks == expected);
      }
  }
}

TEST_CASE("parallel_for: a grain below 1 means 1") {
  std::atomic<int> calls = 0;
  cpu::parallel_for(5, 0, [&](std::int64_t begin, std::int64_t end) { calls += end - begin == 1 ? 1 : 100; });
  CHECK(calls == 5);
}

TEST_CASE("parallel_for: an exception reaches the caller, and the next loop works") {
  for (int threads : {1, 4}) {
    const Threads scope(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      CHECK_THROWS_WITH_AS(cpu::parallel_for(100, 1,
                                             [](std::int64_t begin, std::int64_t) {
                                               if (begin == 37) throw std::runtime_error("chunk 37");
                                             }),
                           "chunk 37", std::runtime_error);
      std::atomic<std::int64_t> sum = 0;
      cpu::parallel_for(100, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
      CHECK(sum == 4950);
    }
  }
}

TEST_CASE("parallel_for: a loop inside a loop runs in place") {
  const Threads scope(4);
  std::atomic<std::int64_t> sum = 0;
  std::atomic<bool> moved = false;
  cpu::parallel_for(20, 1, [&](std::int64_t i, std::int64_t) {
    const auto here = std::this_thread::get_id();
    cpu::parallel_for(30, 1, [&](std::int64_t j, std::int64_t) {
      if (std::this_thread::get_id() != here) moved = true;
      sum += i * 100 + j;
    });
  });
  CHECK(sum == 30 * 100 * 190 + 20 * 435);
  CHECK_FALSE(moved);
}

TEST_CASE("parallel_for: several host threads at once, while the number of threads changes") {
  const Threads scope(3);
  std::vector<std::thread> hosts;
  std::atomic<int> wrong = 0;
  for (int host = 0; host < 4; ++host)
    hosts.emplace_back([&, host] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        if (host == 0) cpu::set_num_threads(1 + repeat % 4);
        std::vector<std::int64_t> values(997, 0);
        cpu::parallel_for(997, 10, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) values[i] += i * host;
        });
        for (std::int64_t i = 0; i < 997; ++i) wrong += values[i] != i * host;
      }
    });
  for (std::thread& host : hosts) host.join();
  CHECK(wrong == 0);
}

TEST_CASE("set_num_threads wants at least one") {
  CHECK_THROWS_AS(cpu::set_num_threads(0), Error);
  CHECK_THROWS_AS(cpu::set_num_threads(-2), Error);
}

TEST_CASE("Scratch: blocks that are alive at the same time do not overlap, and come back") {
  void* first = nullptr;
  {
    const cpu::Scratch a(1000), b(1000), c(3'000'000);
    std::memset(a.as<char>(), 1, 1000);
    std::memset(b.as<char>(), 2, 1000);
    std::memset(c.as<char>(), 3, 3'000'000);
    CHECK(a.as<char>()[999] == 1);
    CHECK(b.as<char>()[0] == 2);
    CHECK(reinterpret_cast<std::uintptr_t>(a.as<char>()) % 64 == 0);
    first = c.as<void>();
  }
  CHECK(cpu::Scratch(2'900'000).as<void>() == first);
  CHECK(cpu::Scratch(0).as<void>() == nullptr);
}
