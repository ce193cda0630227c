#pragma once
// For tests of pictures, which must pass where gnuplot is not installed, too.

#include <cstdlib>
#include <string>

#include "callbacks/plot.h"

namespace halfgrad::test {

inline bool has_gnuplot() { return draw_svg({.title = "probe", .curves = {{"a", {0, 1}, {0, 1}}}}).has_value(); }

/// A PATH in which nothing is found, while one lives.
struct WithoutGnuplot {
  std::string path = std::getenv("PATH");
  WithoutGnuplot() { setenv("PATH", "/nowhere", 1); }
  ~WithoutGnuplot() { setenv("PATH", path.c_str(), 1); }
};

}  // namespace halfgrad::test
