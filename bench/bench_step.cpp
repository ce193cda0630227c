// Whole training steps through the Learner, in f32 and in mixed precision, with the time split into its parts.
//
//   bench_step [--threads N] [--only TEXT] [--csv FILE]
//
// The columns are medians over the batches, in milliseconds: data (waiting for the loader), forward (casts and loss
// included), backward, unscale (what the optimizer does before its update: the finite check and the norm of scaled
// gradients, and by what to multiply them, which the pass of the update does as it reads them), step (the update), rest
// (zeroing, recording). `peak` is the share of the machine's FMA peak that the arithmetic of convolutions and linear layers
// reaches over the whole step.
// bench/pytorch_peer.py times the same steps in PyTorch.

#include <map>
#include <numeric>

#include "bench/table.h"
#include "bench/training.h"
#include "callbacks/learner.h"
#include "engine/random.h"

using namespace halfgrad;
using Case = bench::TrainingCase;

namespace {

// As many batches as take a second or some.
const std::vector<Case> kCases = {{"mlp", 64, 28, 200}, {"cnn", 128, 28, 40}, {"resnet", 64, 32, 4}};

/// The parts of a step that are timed.
constexpr const char* kPhases[] = {"data", "forward", "backward", "unscale", "step", "rest"};

/// What happens between two moments of a batch, told by a callback that runs before all others and one that runs last.
struct Phases {
  std::map<std::string, std::vector<double>> milliseconds;
  double last = 0;

  void begin() { last = bench::now(); }
  void end(const char* phase) {
    const double time = bench::now();
    milliseconds[phase].push_back(1e3 * (time - last));
    last = time;
  }
  double median(const char* phase) const {
    const auto times = milliseconds.find(phase);
    return times == milliseconds.end() ? 0 : bench::median(times->second);
  }
};

struct First : Callback {
  explicit First(Phases& phases) : phases(phases) {}
  Phases& phases;
  int order() const override { return -2000; }
  void on_batch_begin(Learner& learn) override {
    if (learn.state.num_batch > 0) phases.end("data");
    phases.begin();
  }
  void on_backward_end(Learner&) override { phases.end("backward"); }
  void on_step_end(Learner&) override { phases.end("step"); }
};

struct Last : Callback {
  explicit Last(Phases& phases) : phases(phases) {}
  Phases& phases;
  int order() const override { return 2000; }
  void on_backward_begin(Learner&) override { phases.end("forward"); }
  void on_batch_end(Learner&) override { phases.end("rest"); }
};

/// Tells when a step has decided what to do with the gradients.
struct TimedAdamW : optim::AdamW {
  TimedAdamW(const std::vector<optim::GroupSpec>& groups, Phases& phases) : AdamW(groups), phases(phases) {}
  Phases& phases;
  void update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const override {
    phases.end("unscale");
    AdamW::update(backend, steps, control);
  }
};

/// The training of one model in one precision.
class Training {
 public:
  Training(const Case& c, bool fp16)
      : model_(models::make(c.model)),
        flop_(bench::flop_of_step(model_, c)),
        learn_({bench::random_images(c), {}}, model_, nn::cross_entropy, {.opt = timed_adamw(), .silent = true}) {
    if (fp16) learn_.to_fp16();
    learn_.fit(1);  // warm
    phases_.milliseconds.clear();
    learn_.add(std::make_shared<First>(phases_));
    learn_.add(std::make_shared<Last>(phases_));
  }

  void run_epoch() { learn_.fit(1); }

  double flop() const { return flop_; }
  /// Medians over the batches so far, in the order of kPhases.
  std::vector<double> milliseconds() const {
    std::vector<double> result;
    for (const char* phase : kPhases) result.push_back(phases_.median(phase));
    return result;
  }

 private:
  optim::OptimizerFactory timed_adamw() {
    return
        [this](const std::vector<optim::GroupSpec>& groups) { return std::make_unique<TimedAdamW>(groups, phases_); };
  }

  nn::Sequential model_;
  double flop_;
  Phases phases_;
  Learner learn_;
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "Training steps, milliseconds.");
  bench::print_machine();
  bench::Table table(
      {"model", "batch", "total", "to fp32", "data", "forward", "backward", "unscale", "step", "rest", "peak"}, options,
      13);
  for (Case c : kCases) {
    if (!options.wants(c.model)) continue;
    if (options.quick) c.batches = 2;
    manual_seed(1);
    Training single(c, false), mixed(c, true);
    // Epochs alternate, so that a machine that is busy for a while slows both, and the peak.
    std::vector<double> peaks;
    for (int epoch = 0; epoch < std::min(3, bench::sampling.samples); ++epoch) {
      single.run_epoch();
      peaks.push_back(bench::median_seconds({bench::FmaPeak::run}).front());
      mixed.run_epoch();
    }
    const double peak = bench::FmaPeak::gflop / bench::median(peaks);
    double single_total = 0;
    for (const Training* training : {&single, &mixed}) {
      const std::vector<double> parts = training->milliseconds();
      const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
      if (training == &single) single_total = total;
      std::vector<std::string> cells = {c.model + (training == &single ? " fp32" : " fp16"), std::to_string(c.batch),
                                        bench::number(total, 3), bench::number(total / single_total, 2)};
      for (const double part : parts) cells.push_back(bench::number(part, 3));
      cells.push_back(bench::percent(training->flop() / (total * 1e-3) / (peak * 1e9)));
      table.add(cells);
    }
  }
}
