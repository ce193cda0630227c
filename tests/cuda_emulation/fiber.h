#pragma once
// A fiber: a function with a stack of its own, which runs until it suspends itself and goes on from there.

#include <cstddef>

namespace cuda_emulation {

class Fiber {
 public:
  /// `body` must never return.
  explicit Fiber(void (*body)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the fiber until it suspends itself.
  void resume();
  /// Goes back to where the running fiber was resumed.
  static void suspend();

 private:
  [[noreturn]] static void start();

  struct Context;
  Context* context_;
};

}  // namespace cuda_emulation
