#include "callbacks/show_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "callbacks/learner.h"

namespace halfgrad {

namespace {

constexpr const char* kMarks = "*o+x#@%&";

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Which of `n` places from low to high is the nearest.
  int place(double value, int n) const {
    return high > low ? static_cast<int>(std::lround((value - low) / (high - low) * (n - 1))) : n / 2;
  }
};

}  // namespace

std::string text_chart(const Chart& chart, int width, int height) {
  check(width >= 2 && height >= 2, "text_chart: {} by {} characters; expected at least 2 by 2", width, height);
  check_chart(chart);
  Range xs, ys;
  for (const Curve& curve : chart.curves)
    for (std::size_t k = 0; k < curve.x.size(); ++k)
      if (curve.has_point(k)) {
        xs.include(curve.x[k]);
        ys.include(curve.y[k]);
      }
  if (xs.low > xs.high) return "";

  std::vector<std::string> canvas(static_cast<std::size_t>(height), std::string(static_cast<std::size_t>(width), ' '));
  std::string legend;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    const char mark = kMarks[i % std::char_traits<char>::length(kMarks)];
    legend += fmt::format("   {} {}", mark, curve.label);
    for (std::size_t k = 0; k < curve.x.size(); ++k) {
      if (!curve.has_point(k)) continue;
      // A line from the point before, or from the point itself where there is none.
      const std::size_t from = k > 0 && curve.has_point(k - 1) ? k - 1 : k;
      const int column = xs.place(curve.x[from], width), row = ys.place(curve.y[from], height);
      const int right = xs.place(curve.x[k], width) - column, up = ys.place(curve.y[k], height) - row;
      const int steps = std::max({std::abs(right), std::abs(up), 1});
      for (int step = 0; step <= steps; ++step) {
        const auto at = [&](int start, int way) {
          return static_cast<int>(std::lround(start + double(way) * step / steps));
        };
        canvas[static_cast<std::size_t>(height - 1 - at(row, up))][static_cast<std::size_t>(at(column, right))] = mark;
      }
    }
  }

  std::string text;
  for (std::size_t row = 0; row < canvas.size(); ++row) {
    canvas[row].erase(canvas[row].find_last_not_of(' ') + 1);
    const std::string y = row == 0                   ? fmt::format("{:.4g}", ys.high)
                          : row + 1 == canvas.size() ? fmt::format("{:.4g}", ys.low)
                                                     : "";
    text += fmt::format("{:>10} |{}\n", y, canvas[row]);
  }
  const std::string left = fmt::format("{:.4g}", xs.low), right = fmt::format("{:.4g}", xs.high);
  text += fmt::format("{:>10} +{}\n", "", std::string(static_cast<std::size_t>(width), '-'));
  text += fmt::format("{:>10}  {}{:>{}}\n", "", left, right, std::max(width - static_cast<int>(left.size()), 1));
  return text + fmt::format("{:>9}{}   ({})\n", "", legend, chart.x_label);
}

ShowGraph::ShowGraph() : ShowGraph(std::cout) {}

void ShowGraph::on_epoch_end(Learner& learn) { out_ << text_chart(learn.recorder().loss_chart()) << std::flush; }

}  // namespace halfgrad
