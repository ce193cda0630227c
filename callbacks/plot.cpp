#include "callbacks/plot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
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

// Runs gnuplot on a file of commands, silently; false when it is not installed or fails.
bool run_gnuplot(const std::string& file) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const char* arguments[] = {"gnuplot", file.c_str(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gnuplot", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return failed == 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

std::optional<std::string> draw_svg(const Chart& chart, int width, int height) {
  const TemporaryFile commands, output;
  std::ofstream(commands.path, std::ios::binary) << script(chart, output.path, width, height);
  if (!run_gnuplot(commands.path)) return std::nullopt;
  std::string svg = output.contents();
  if (svg.empty()) return std::nullopt;
  return svg;
}

}  // namespace halfgrad
