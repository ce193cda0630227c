// Tests of what runs on a GPU, whoever plays it: the machine's own, or the emulation, when HALFGRAD_CUDA_MODULE names it.
// Where there is neither, they are skipped.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "engine/cuda/cuda.h"
#include "engine/error.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // for Meson
  try {
    halfgrad::cuda::backend(0);
  } catch (const halfgrad::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return std::getenv("HALFGRAD_CUDA_MODULE") ? EXIT_FAILURE : kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
