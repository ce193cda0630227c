#pragma once
// How the emulation is told what to do, and how it tells what went wrong.

#include <string>

namespace cuda_emulation {

/// What the environment variable CUDA_EMULATION asks for: some of these words, with commas between them.
struct Options {
  bool reverse = false;  ///< blocks, and threads between barriers, run in the reverse order
  bool no_gpu = false;   ///< there is no GPU
};
Options& options();

/// Prints "cuda emulation: what [where]" and ends the program with kFaultStatus.
[[noreturn]] void fault(const std::string& what);
inline constexpr int kFaultStatus = 86;

}  // namespace cuda_emulation
