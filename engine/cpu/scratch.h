#pragma once
// Working memory of a kernel, kept per thread between calls.

#include <cstddef>

namespace halfgrad::cpu {

/// Memory for the duration of a scope: aligned to 64 bytes, contents undefined. It comes from a small cache
/// of the calling thread and goes back to it, so a training step asks the system for nothing. Several may be
/// alive at a time. Other threads may use the memory while the scope lasts.
class Scratch {
 public:
  /// Throws Error when memory is out.
  explicit Scratch(std::size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace halfgrad::cpu
