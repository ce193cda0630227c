#include "engine/cpu/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "engine/error.h"

namespace halfgrad::cpu {
namespace {

int initial_threads() {
  const char* text = std::getenv("HALFGRAD_THREADS");
  if (text == nullptr || *text == '\0') return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  int n = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, n);
  check(error == std::errc() && stop == end && n >= 1,
        "HALFGRAD_THREADS is \"{}\", expected a number of threads, 1 or more", text);
  return n;
}

// The threads. TBB counts the caller as one of them, so an arena of n slots has n - 1 workers.
struct Team {
  explicit Team(int n) : size(n), arena(n) {
    // Lets arenas have more threads than the machine has cores, when somebody asks for that.
    static const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 256);
  }
  int size;
  tbb::task_arena arena;
};

std::mutex team_mutex;
std::shared_ptr<Team> team;     // made by the first loop that needs it
std::atomic<int> team_size{0};  // 0: not known yet
thread_local bool inside_loop = false;

std::shared_ptr<Team> current_team() {
  const std::lock_guard lock(team_mutex);
  if (!team || team->size != team_size) team = std::make_shared<Team>(team_size);
  return team;
}

}  // namespace

int num_threads() {
  int n = team_size.load(std::memory_order_relaxed);
  if (n == 0) {
    n = initial_threads();
    int unknown = 0;
    if (!team_size.compare_exchange_strong(unknown, n)) n = unknown;
  }
  return n;
}

void set_num_threads(int n) {
  check(n >= 1, "set_num_threads: {} threads, expected 1 or more", n);
  team_size = n;
}

void detail::run_chunks(std::int64_t n, std::int64_t grain, LoopBody body, void* context) {
  const std::int64_t chunks = (n + grain - 1) / grain;
  const auto run = [=](std::int64_t chunk) { body(context, chunk * grain, std::min(n, (chunk + 1) * grain)); };

  // Nested loops run in place: the outer loop already keeps every thread busy.
  if (inside_loop || num_threads() == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) run(chunk);
    return;
  }
  current_team()->arena.execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, chunks), [&](const tbb::blocked_range<std::int64_t>& some) {
      struct Inside {
        Inside() { inside_loop = true; }
        ~Inside() { inside_loop = false; }
      } inside;
      for (std::int64_t chunk = some.begin(); chunk != some.end(); ++chunk) run(chunk);
    });
  });
}

}  // namespace halfgrad::cpu
