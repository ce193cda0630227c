#pragma once
// The options and the output that all benchmarks share: a table on the terminal, and the same as CSV with --csv FILE.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "engine/cpu/kernels.h"
#include "engine/io/atomic_file.h"

namespace bench {

struct Options {
  int threads = 1;
  std::string csv;

  /// Ends the program after --help or an error. `add` declares further options.
  template <class F>
  Options(int argc, char** argv, const std::string& about, F&& add) {
    CLI::App app(about);
    app.add_option("--threads", threads, "CPU threads")->check(CLI::Range(1, 256))->capture_default_str();
    app.add_option("--csv", csv, "write the table to this file as well");
    add(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      std::exit(app.exit(error) == 0 ? 0 : 1);
    }
    halfgrad::cpu::set_num_threads(threads);
  }
  Options(int argc, char** argv, const std::string& about) : Options(argc, argv, about, [](CLI::App&) {}) {}
};

/// Rows appear as they are added. Numbers are right-aligned, texts left-aligned.
class Table {
 public:
  /// A name for each column; its width is that of the name, at least 8.
  Table(std::vector<std::string> names, const Options& options) : names_(std::move(names)), csv_file_(options.csv) {
    for (const std::string& name : names_) {
      std::printf("%*s", static_cast<int>(width(name)), name.c_str());
      csv_ += name + (&name == &names_.back() ? "\n" : ",");
    }
    std::printf("\n");
  }
  ~Table() {
    try {
      if (!csv_file_.empty()) halfgrad::write_file_atomically(csv_file_, csv_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }

  void add(const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::printf("%*s", static_cast<int>(width(names_[i])), cells[i].c_str());
      csv_ += cells[i] + (i + 1 < cells.size() ? "," : "\n");
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static std::size_t width(const std::string& name) { return std::max<std::size_t>(name.size(), 8) + 2; }

  std::vector<std::string> names_;
  std::string csv_file_, csv_;
};

/// A number with so many digits behind the point.
inline std::string number(double value, int digits = 1) { return fmt::format("{:.{}f}", value, digits); }

/// The line above each table.
inline void print_machine() {
  std::printf("%s kernels, %d thread(s); FMA peak %.0f GFLOP/s\n\n", halfgrad::cpu::kernels().isa,
              halfgrad::cpu::num_threads(), fma_peak());
}

}  // namespace bench
