#pragma once
// What the command lines of the examples have in common.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "engine/cpu/parallel.h"
#include "engine/cuda/cuda.h"
#include "engine/random.h"

namespace examples {

using namespace halfgrad;

struct CommonSettings {
  std::string device = "auto", data;
  bool fp16 = true, fp32 = false;
  int epochs = 5, threads = 0;
  double lr = 0;
  std::int64_t batch_size = 0, limit = 0;
  std::uint64_t seed = 0;
};

/// CLI11's own validators spell out the largest double in their messages.
inline CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return good ? std::string() : fmt::format("'{}' is not a number from {} to {}", text, low, high);
      },
      "");
}

/// `lr_help` describes --lr.
inline void declare_common_options(CLI::App& app, CommonSettings& s, const std::string& lr_help) {
  app.add_option("--epochs", s.epochs, "times through the data")->check(between(1, 1e6));
  app.add_option("--lr", s.lr, lr_help)->check(between(1e-30, 1e30));
  app.add_option("--batch-size", s.batch_size, "images per step")->check(between(1, 8192));
  app.add_option("--seed", s.seed, "of all random numbers")->check(between(0, 1e18));
  app.add_option("--data", s.data, "folder of the four IDX files (default: Debian's dataset-fashion-mnist)");
  app.add_option("--limit", s.limit, "use only so many images of each set")->check(between(1, 60000));
  app.add_option("--device", s.device, "cpu, cuda, or auto: a GPU if there is one")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--threads", s.threads, "CPU threads")->check(between(1, 1024));
  CLI::Option* fp16 = app.add_flag("--fp16", s.fp16, "mixed precision (default)");
  app.add_flag("--fp32", s.fp32, "plain f32 training")->excludes(fp16);
}

/// The device of this name; for auto the GPU if there is one. Error for cuda where there is none.
inline Device choose_device(const std::string& name) {
  const bool gpu = name == "cuda" || (name == "auto" && cuda::is_available());
  return gpu ? backend_for(Device::cuda()).device() : Device::cpu();
}

/// Says in one line what --device auto has chosen, and why.
inline void print_choice(const std::string& name, Device chosen) {
  if (name != "auto") return;
  fmt::print("training on {}{}\n", chosen, chosen.is_cpu() ? ": " + cuda::why_unavailable() : "");
  std::fflush(stdout);
}

/// Parses the command line, prepares threads and random numbers and calls train(). The exit status of the program:
/// whatever goes wrong is one line of text and status 1.
template <class Train>
int run(CLI::App& app, int argc, char** argv, const CommonSettings& settings, Train train) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected() > 0) option->capture_default_str();
  try {
    app.parse(argc, argv);
    if (settings.threads > 0) cpu::set_num_threads(settings.threads);
    manual_seed(settings.seed);
    train();
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
    return 1;
  }
}

}  // namespace examples
