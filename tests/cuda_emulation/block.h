#pragma once
// The threads of a block. A thread runs until it comes to a barrier, then the next one runs; when all that a barrier waits
// for have arrived, they go on. So the order is always the same, and a kernel without barriers is a plain loop.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <typeinfo>

namespace cuda_emulation {

/// A line of a kernel, as the default of a parameter: the line of the caller.
struct Line {
  const char* file;
  int number;
  static constexpr Line current(const char* file = __builtin_FILE(), int number = __builtin_LINE()) {
    return {file, number};
  }
  friend bool operator==(const Line& a, const Line& b) { return a.number == b.number && std::string(a.file) == b.file; }
};

/// A kernel with its arguments, ready to run.
struct Kernel {
  const char* name;
  dim3 grid, block;
  std::function<void()> thread;  ///< the work of one thread
};
void run_kernel(const Kernel& kernel);

/// What the thread that runs now finds in threadIdx and its like.
struct Position {
  uint3 thread, block;
  dim3 block_size, grid_size;
  unsigned lane;  // in its warp
};
inline thread_local Position position;
/// "kernel exp, block (0, 0, 0), thread (5, 0, 0)", or "no kernel is running"
std::string current_position();
bool kernel_is_running();

// --- for the functions of device_functions.h ---

/// Waits for all threads of the block that have not ended.
void block_barrier(Line line);
/// Waits for the lanes of the warp that `mask` names.
void warp_barrier(unsigned mask, Line line);
/// Gives the other lanes of the mask 16 bytes, and reads those of the lane `source` when all have given theirs.
void exchange(unsigned mask, unsigned source, const void* given, void* taken, std::size_t bytes, Line line);

/// Memory that the threads of a block share: the same for all that ask on this line for this type. It is not written yet,
/// so it is full of NaN.
void* shared_memory(const std::type_info& type, std::size_t bytes, Line line);
template <class T>
T* shared_array(std::size_t count, Line line = Line::current()) {
  return static_cast<T*>(shared_memory(typeid(T), count * sizeof(T), line));
}

}  // namespace cuda_emulation
