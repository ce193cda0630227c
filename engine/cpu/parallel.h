#pragma once
// The one way in which CPU code uses several threads.
//
// Work is cut into chunks of a fixed size that the caller chooses from the shape of the problem, never from
// the number of threads. Which thread runs a chunk is left to chance; what a chunk computes is not. So a
// kernel whose chunks do not depend on each other gives the same bits with any number of threads.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace halfgrad::cpu {

/// How many threads a loop may use. The first value is that of the environment variable HALFGRAD_THREADS, or
/// else the number of hardware threads.
int num_threads();
/// Throws Error when n < 1. Loops that are running keep their threads.
void set_num_threads(int n);

namespace detail {
using LoopBody = void (*)(void* context, std::int64_t begin, std::int64_t end);
void run_chunks(std::int64_t n, std::int64_t grain, LoopBody body, void* context);
}  // namespace detail

/// Calls f(begin, end) for the chunks [0, grain), [grain, 2*grain), ... of [0, n), the last one shorter, on
/// several threads and in any order; returns when all are done. An exception of f reaches the caller, and
/// chunks that have not begun by then are dropped. May be called by several threads at once; a loop inside a
/// loop runs on its own thread.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (n <= grain) {
    f(std::int64_t{0}, n);
    return;
  }
  using Function = std::remove_reference_t<F>;
  detail::run_chunks(
      n, grain,
      [](void* context, std::int64_t begin, std::int64_t end) { (*static_cast<Function*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace halfgrad::cpu
