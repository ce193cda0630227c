#pragma once
// How a layer's window options read in str(): "3, stride=2, padding=(1, 0)".

#include <fmt/core.h>

#include <string>

#include "engine/ops/window.h"

namespace halfgrad::nn {

inline std::string text_of(Pair pair) {
  return pair.h == pair.w ? std::to_string(pair.h) : fmt::format("({}, {})", pair.h, pair.w);
}

/// ", name=value", or nothing when it is the default.
inline std::string unless(const char* name, Pair value, Pair usual) {
  return value.h == usual.h && value.w == usual.w ? "" : fmt::format(", {}={}", name, text_of(value));
}

}  // namespace halfgrad::nn
