#include "callbacks/plot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/error.h"

namespace halfgrad {

namespace {

// A string constant of gnuplot, shown as it is: single quotes are doubled, and `noenhanced` leaves _ and ^ alone.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("''") : std::string(1, c == '\n' ? ' ' : c);
  return out + "'";
}

std::string script(const Chart& chart, const std::string& output, int width, int height) {
  std::string s = fmt::format("set terminal svg noenhanced size {},{} background 'white'\nset output {}\n", width,
                              height, quoted(output));
  s += fmt::format("set title {}\nset xlabel {}\nset ylabel {}\nset grid\n", quoted(chart.title), quoted(chart.x_label),
                   quoted(chart.y_label));
  if (chart.log_x) s += "set logscale x\n";
  if (chart.log_y) s += "set logscale y\n";
  std::string plots;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    check(curve.x.size() == curve.y.size(), "plot: the curve '{}' has {} x and {} y values; expected as many of each",
          curve.label, curve.x.size(), curve.y.size());
    s += fmt::format("$curve{} << END\n", i);
    for (std::size_t k = 0; k < curve.x.size(); ++k)
      s += std::isfinite(curve.y[k]) ? fmt::format("{:.9g} {:.9g}\n", curve.x[k], curve.y[k]) : std::string("\n");
    s += "END\n";
    plots += fmt::format("{}$curve{} using 1:2 with lines title {}", i ? ", " : "plot ", i, quoted(curve.label));
  }
  return s + plots + "\n";
}

}  // namespace

std::optional<std::string> draw_svg(const Chart& chart, int width, int height) {
  std::string path = (std::filesystem::temp_directory_path() / "halfgrad-plot-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  check(descriptor >= 0, "plot: no temporary file can be made in '{}'",
        std::filesystem::temp_directory_path().string());
  close(descriptor);
  const std::string commands = script(chart, path, width, height);
  int status = -1;
  if (FILE* gnuplot = popen("gnuplot 2>/dev/null", "w")) {
    std::fwrite(commands.data(), 1, commands.size(), gnuplot);
    status = pclose(gnuplot);
  }
  std::ifstream file(path, std::ios::binary);
  std::string svg{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  if (status != 0 || svg.empty()) return std::nullopt;
  return svg;
}

}  // namespace halfgrad
