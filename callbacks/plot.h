#pragma once
// Line charts, drawn by gnuplot.

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace halfgrad {

struct Curve {
  std::string label = {};
  std::vector<double> x = {}, y = {};  ///< of one length; points that are not finite are gaps
  bool has_point(std::size_t k) const { return std::isfinite(x[k]) && std::isfinite(y[k]); }
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Curve> curves = {};
  bool log_x = false, log_y = false;
};

/// Error when a curve has other numbers of x and of y values.
void check_chart(const Chart& chart);

/// The chart as an SVG document; nothing when gnuplot is not installed, or when there is no point to draw.
std::optional<std::string> draw_svg(const Chart& chart, int width = 640, int height = 400);

/// Draws the charts, one below the other, into a file that ends in .png or .svg, and writes their numbers beside it
/// into one of the same name that ends in .csv: a line `curve,x,y` per point. Each is written whole or not at all.
/// Throws Error for another ending, for a file that cannot be written, and, once the numbers are written, when gnuplot
/// is not installed or fails, or when no point is finite.
void save_charts(const std::vector<Chart>& charts, const std::string& path);
void save_chart(const Chart& chart, const std::string& path);

}  // namespace halfgrad
