#pragma once
#include <cstdint>
namespace halfgrad::cpu {
struct ConvKernels {
  int tile_rows = 0;
};
}  // namespace halfgrad::cpu
