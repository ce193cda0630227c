#pragma once
// Line charts, drawn by gnuplot.

#include <optional>
#include <string>
#include <vector>

namespace halfgrad {

struct Curve {
  std::string label = {};
  std::vector<double> x = {}, y = {};  ///< of one length; points that are not finite are gaps
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Curve> curves = {};
  bool log_x = false, log_y = false;
};

/// The chart as an SVG document; nothing when gnuplot is not installed.
std::optional<std::string> draw_svg(const Chart& chart, int width = 640, int height = 400);

}  // namespace halfgrad
