#include "callbacks/plot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "callbacks/csv.h"
#include "engine/error.h"
#include "engine/io/atomic_file.h"

namespace halfgrad {

namespace {

// --- what gnuplot is told ----------------------------------------------------------------------------------

struct Canvas {
  bool png;
  int width = 640, height = 400;  // of one chart, in pixels
};

// A string constant of gnuplot, shown as it is: single quotes are doubled, and `noenhanced` leaves _ and ^ alone.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("''") : std::string(1, c == '\n' ? ' ' : c);
  return out + "'";
}

bool has_point(const Chart& chart) {
  for (const Curve& curve : chart.curves)
    for (std::size_t k = 0; k < curve.x.size(); ++k)
      if (curve.has_point(k)) return true;
  return false;
}

std::string terminal(const Canvas& canvas, std::size_t charts) {
  const std::string options =
      fmt::format("noenhanced size {},{}", canvas.width, canvas.height * static_cast<int>(charts));
  if (!canvas.png) return fmt::format("set terminal svg {} background 'white'\n", options);
  // Cairo draws finer lines, but not every gnuplot has it.
  return fmt::format(
      "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {{ set terminal pngcairo {0} }} else {{ set terminal png {0} }}\n",
      options);
}

std::string points(const Curve& curve) {
  std::string s;
  for (std::size_t k = 0; k < curve.x.size(); ++k)
    s += curve.has_point(k) ? fmt::format("{:.9g} {:.9g}\n", curve.x[k], curve.y[k]) : std::string("\n");
  return s;
}

// The same for all charts: room at the right for the last number, and around the curves so that the frame hides none.
constexpr const char* kLook =
    "set grid\nset key above\nset format '%g'\nset rmargin 4\nset autoscale noextend\nset offsets graph 0, graph 0, "
    "graph 0.04, graph 0.04\n";

// One chart; `data` names the block of points of each curve.
std::string plot(const Chart& chart, const std::vector<std::string>& data) {
  std::string s = fmt::format("set title {}\nset xlabel {}\nset ylabel {}\n{} logscale x\n{} logscale y\nplot ",
                              quoted(chart.title), quoted(chart.x_label), quoted(chart.y_label),
                              chart.log_x ? "set" : "unset", chart.log_y ? "set" : "unset");
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    // A few points are shown as such: a single one would not be seen otherwise.
    const char* style =
        curve.x.size() > 40 ? "lines linewidth 1.5" : "linespoints linewidth 1.5 pointtype 7 pointsize 0.5";
    const std::string title = chart.curves.size() > 1 ? "title " + quoted(curve.label) : "notitle";
    s += fmt::format("{}{} using 1:2 with {} {}", i ? ", " : "", data[i], style, title);
  }
  return s + "\n";
}

// Those of the charts that have a point, one below the other.
std::string script(const std::vector<Chart>& charts, const std::string& output, const Canvas& canvas) {
  std::string data, plots;
  std::size_t drawn = 0;
  for (const Chart& chart : charts) {
    if (!has_point(chart)) continue;
    std::vector<std::string> blocks;
    for (const Curve& curve : chart.curves) {
      blocks.push_back(fmt::format("$chart{}_curve{}", drawn, blocks.size()));
      data += fmt::format("{} << END\n{}END\n", blocks.back(), points(curve));
    }
    plots += plot(chart, blocks);
    ++drawn;
  }
  if (drawn > 1) plots = fmt::format("set multiplot layout {},1\n{}unset multiplot\n", drawn, plots);
  return fmt::format("{}set output {}\n{}{}{}", terminal(canvas, drawn), quoted(output), kLook, data, plots);
}

// --- running it --------------------------------------------------------------------------------------------

// A new empty file that is removed again.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / "halfgrad-plot-XXXXXX").string();
  TemporaryFile() {
    const int descriptor = mkstemp(path.data());
    check(descriptor >= 0, "plot: no temporary file can be made in '{}'",
          std::filesystem::temp_directory_path().string());
    close(descriptor);
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string contents() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

// Runs gnuplot on a file of commands, silently; returns what went wrong, or nothing.
std::string run_gnuplot(const std::string& file) {
  const TemporaryFile complaints;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, complaints.path.c_str(), O_WRONLY, 0);
  const char* arguments[] = {"gnuplot", file.c_str(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gnuplot", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return "gnuplot is not installed (Debian: gnuplot-nox)";
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0 ? "" : "gnuplot failed: " + complaints.contents();
}

struct Drawing {
  std::string picture;
  std::string problem;  // why there is none
};

Drawing draw(const std::vector<Chart>& charts, const Canvas& canvas) {
  for (const Chart& chart : charts) check_chart(chart);
  if (std::none_of(charts.begin(), charts.end(), has_point)) return {.picture = "", .problem = "no point is finite"};
  const TemporaryFile commands, output;
  std::ofstream(commands.path, std::ios::binary) << script(charts, output.path, canvas);
  const std::string problem = run_gnuplot(commands.path);
  if (!problem.empty()) return {.picture = "", .problem = problem};
  std::string picture = output.contents();
  return {.picture = picture, .problem = picture.empty() ? "gnuplot wrote nothing" : ""};
}

std::string numbers(const std::vector<Chart>& charts) {
  std::string text = csv_line({"curve", "x", "y"});
  for (const Chart& chart : charts)
    for (const Curve& curve : chart.curves)
      for (std::size_t k = 0; k < curve.x.size(); ++k)
        text += csv_line({curve.label, fmt::format("{}", curve.x[k]), fmt::format("{}", curve.y[k])});
  return text;
}

}  // namespace

void check_chart(const Chart& chart) {
  for (const Curve& curve : chart.curves)
    check(curve.x.size() == curve.y.size(), "plot: the curve '{}' has {} x and {} y values; expected as many of each",
          curve.label, curve.x.size(), curve.y.size());
}

std::optional<std::string> draw_svg(const Chart& chart, int width, int height) {
  Drawing drawing = draw({chart}, {.png = false, .width = width, .height = height});
  if (!drawing.problem.empty()) return std::nullopt;
  return std::move(drawing.picture);
}

void save_charts(const std::vector<Chart>& charts, const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  check(extension == ".png" || extension == ".svg", "plot: '{}' ends in '{}'; expected .png or .svg", path, extension);
  for (const Chart& chart : charts) check_chart(chart);
  const std::string csv = std::filesystem::path(path).replace_extension(".csv").string();
  write_file_atomically(csv, numbers(charts));
  const Drawing drawing = draw(charts, {.png = extension == ".png"});
  check(drawing.problem.empty(), "plot: '{}' was not drawn, since {}; its numbers are in '{}'", path, drawing.problem,
        csv);
  write_file_atomically(path, drawing.picture);
}

void save_chart(const Chart& chart, const std::string& path) { save_charts({chart}, path); }

}  // namespace halfgrad
