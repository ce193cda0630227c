#pragma once
// The options and the output that all benchmarks share: a table on the terminal, and the same as CSV with --csv FILE.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "engine/cpu/kernels.h"
#include "engine/io/atomic_file.h"

namespace bench {

struct Options {
  int threads = 1;
  std::string csv, only;
  bool best = false, quick = false;

  /// Ends the program after --help or an error. `add` declares further options.
  template <class F>
  Options(int argc, char** argv, const std::string& about, F&& add) {
    CLI::App app(about);
    app.add_option("--threads", threads, "CPU threads")->check(CLI::Range(1, 256))->capture_default_str();
    app.add_option("--csv", csv, "write the table to this file as well");
    app.add_option("--only", only, "only the rows with this in their name");
    app.add_flag("--best", best, "the best of many short samples: for a machine that is busy with other things");
    app.add_flag("--quick", quick, "one short sample of everything, to see that it runs");
    add(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      std::exit(app.exit(error) == 0 ? 0 : 1);
    }
    halfgrad::cpu::set_num_threads(threads);
    if (best) sampling = {.seconds = 0.0003, .samples = 500, .best = true};
    if (quick) sampling = {.seconds = 0.0005, .samples = 1};
  }
  Options(int argc, char** argv, const std::string& about) : Options(argc, argv, about, [](CLI::App&) {}) {}

  /// Whether the row of this name was asked for.
  bool wants(const std::string& name) const { return name.find(only) != std::string::npos; }
};

/// Rows appear as they are added. The first column holds names and is left-aligned, the others hold numbers.
class Table {
 public:
  /// `names` of the columns, none with a comma; `first_width` is that of the first.
  Table(std::vector<std::string> names, const Options& options, std::size_t first_width = 8)
      : names_(std::move(names)), first_width_(first_width), csv_file_(options.csv) {
    add(names_);
  }
  ~Table() {
    try {
      if (!csv_file_.empty()) halfgrad::write_file_atomically(csv_file_, csv_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void add(const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i == 0) {
        fmt::print("{:<{}}", cells[i], first_width_);
      } else {
        fmt::print("{:>{}}", cells[i], std::max<std::size_t>(names_[i].size(), 7) + 2);
      }
      csv_ += cells[i] + (i + 1 < cells.size() ? "," : "\n");
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  std::vector<std::string> names_;
  std::size_t first_width_;
  std::string csv_file_, csv_;
};

/// A number with so many digits behind the point; "-" for one that was not measured.
inline std::string number(double value, int digits = 1) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}
inline std::string percent(double share) { return std::isnan(share) ? "-" : fmt::format("{:.0f}%", 100 * share); }

/// The mean of ratios; NaN ones are passed over.
class GeometricMean {
 public:
  /// Returns `ratio`.
  double add(double ratio) {
    if (!std::isnan(ratio)) {
      sum_of_logarithms_ += std::log(ratio);
      ++count_;
    }
    return ratio;
  }
  double value() const { return std::exp(sum_of_logarithms_ / count_); }

 private:
  double sum_of_logarithms_ = 0;
  int count_ = 0;
};

/// The name of the processor, where the system tells.
inline std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// The line above each table.
inline void print_machine() {
  fmt::print("{}, {} kernels, {} thread(s), FMA peak {:.0f} GFLOP/s\n\n", processor(), halfgrad::cpu::kernels().isa,
             halfgrad::cpu::num_threads(), FmaPeak::measure());
}

}  // namespace bench
