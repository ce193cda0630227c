// Whole training steps through the Learner, in f32 and in mixed precision, with the time split into its parts.
//
//   bench_step [--threads N] [--model mlp|cnn|resnet ...] [--csv FILE]
//
// The columns are medians over the batches, in milliseconds: data (waiting for the loader), forward (casts and loss
// included), backward, unscale (overflow check and norm), step (optimizer), rest (zeroing, recording). `peak` is the share
// of the machine's FMA peak that the arithmetic of convolutions and linear layers reaches over the whole step.
// bench/pytorch_peer.py times the same steps in PyTorch.

#include <map>

#include "bench/table.h"
#include "callbacks/learner.h"
#include "engine/random.h"
#include "examples/models.h"

using namespace halfgrad;

namespace {

struct Case {
  std::string model;
  std::int64_t batch, size;  // images [batch, 1, size, size]
};
const std::vector<Case> kCases = {{"mlp", 64, 28}, {"cnn", 128, 28}, {"resnet", 64, 32}};

/// Multiply-adds, as two operations each, of one training step: the forward products, and for each of them two in
/// backward, but none for the gradient of the input.
double flop_of_step(nn::Module& model, const Tensor& input) {
  double total = 0, first = 0;
  std::vector<std::pair<nn::Module*, int>> hooks;
  for (const auto& [path, module] : model.named_modules()) {
    const auto count = [&](const Tensor& weight) {
      const double per_output = 2.0 * static_cast<double>(weight.numel() / weight.size(0));
      hooks.emplace_back(module,
                         module->register_forward_hook([&, per_output](nn::Module&, const Tensors&, const Tensor& y) {
                           const double flop = per_output * static_cast<double>(y.numel());
                           if (total == 0) first = flop;
                           total += 3 * flop;
                           return Tensor();
                         }));
    };
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(module)) count(conv->weight);
    if (const auto* linear = dynamic_cast<nn::Linear*>(module)) count(linear->weight);
  }
  NoGrad guard;
  model(input);
  for (const auto& [module, id] : hooks) module->remove_hook(id);
  return total - first;
}

/// What happens between two moments of a batch, told by a callback that runs before all others and one that runs last.
struct Phases {
  std::map<std::string, std::vector<double>> milliseconds;
  double last = 0;
  bool running = false;

  void begin() { last = bench::now(); }
  void end(const char* phase) {
    const double time = bench::now();
    milliseconds[phase].push_back(1e3 * (time - last));
    last = time;
  }
  double median(const char* phase) {
    std::vector<double>& v = milliseconds[phase];
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
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
  void on_backward_end(Learner&) override { phases.end("unscale"); }
  void on_batch_end(Learner&) override { phases.end("rest"); }
};

double measure(const Case& c, bool fp16, double peak, bench::Table& table, double f32_total) {
  manual_seed(1);
  nn::Sequential model = models::make(c.model);
  const double flop = flop_of_step(model, zeros({c.batch, 1, c.size, c.size}));
  // As many batches as take some seconds, each epoch the same ones.
  const std::int64_t batches = c.model == "resnet" ? 8 : 60;
  const data::TensorDataset dataset(randn({batches * c.batch, 1, c.size, c.size}), randint(0, 10, {batches * c.batch}));
  Phases phases;
  Learner learn({data::DataLoader(dataset, {.batch_size = c.batch, .shuffle = true}), {}}, model, nn::cross_entropy,
                {.opt = optim::adamw(), .silent = true});
  if (fp16) learn.to_fp16();
  learn.fit(1);  // warm
  learn.add(std::make_shared<First>(phases));
  learn.add(std::make_shared<Last>(phases));
  learn.fit(c.model == "resnet" ? 1 : 3);

  double total = 0;
  std::vector<std::string> cells = {c.model, std::to_string(c.batch), fp16 ? "fp16" : "fp32"};
  std::vector<std::string> parts;
  for (const char* phase : {"data", "forward", "backward", "unscale", "step", "rest"}) {
    total += phases.median(phase);
    parts.push_back(bench::number(phases.median(phase), 3));
  }
  cells.push_back(bench::number(total, 3));
  cells.push_back(fp16 ? bench::number(total / f32_total, 2) : "1.00");
  cells.insert(cells.end(), parts.begin(), parts.end());
  cells.push_back(bench::number(100 * flop / (total * 1e-3) / (peak * 1e9), 0) + "%");
  table.add(cells);
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models;
  const bench::Options options(argc, argv, "Training steps, milliseconds.", [&](CLI::App& app) {
    app.add_option("--model", models, "only these")->check(CLI::IsMember({"mlp", "cnn", "resnet"}));
  });
  bench::print_machine();
  const double peak = bench::fma_peak();
  bench::Table table(
      {"model", "batch", "", "total", "to fp32", "data", "forward", "backward", "unscale", "step", "rest", "peak"},
      options);
  for (const Case& c : kCases) {
    if (!models.empty() && std::find(models.begin(), models.end(), c.model) == models.end()) continue;
    const double f32_total = measure(c, false, peak, table, 0);
    measure(c, true, peak, table, f32_total);
  }
}
