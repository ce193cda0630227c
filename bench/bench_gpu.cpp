// What a GPU reaches: matrix products and convolutions as a share of the speed of a large product, passes over memory
// as a share of the speed of a large copy, and whole training steps, each in f32 and in f16.
//
//   bench_gpu [--only TEXT] [--csv FILE] [--quick]
//
// Medians, as everywhere in bench/; the clock is stopped when the GPU is done (Backend::synchronize). The peaks are
// measured in the same run: f32 without TF32, f16 on tensor cores with sums in f32. A training step includes the upload of
// its batch; "captured" is the same step as a CUDA graph (Learner::capture_step), which starts all of its kernels with a
// single call. The last column says how many times as fast f16 is as f32.
//
// With --quick the sizes are tiny as well, so that the emulation of tests/cuda_emulation can run it. Ends with status
// 77 where there is no GPU.

#include "bench/convolution.h"
#include "bench/table.h"
#include "bench/training.h"
#include "callbacks/learner.h"
#include "engine/cuda/cuda.h"
#include "engine/ops/norm.h"
#include "engine/ops/softmax.h"
#include "engine/random.h"

using namespace halfgrad;
using bench::Convolution;
using bench::number;
using bench::percent;

namespace {

const Device kGpu = Device::cuda();

/// What bounds the two precisions, per second.
struct Peaks {
  double flop[2], bytes;
};

class Report {
 public:
  explicit Report(const bench::Options& options)
      : options_(options), table_({"on the GPU", "unit", "f32", "of peak", "f16", "of peak", "f16/f32"}, options, 46) {}

  bool wants(const std::string& name) const { return options_.wants(name); }

  /// A row in `unit`s of so many per second; `work` and `peak` are counted in one of them.
  void add_rates(const std::string& name, const std::string& unit, double per_unit, const double (&work)[2],
                 const double (&peak)[2], const std::vector<double>& seconds) {
    std::vector<std::string> cells = {name, unit};
    for (std::size_t i = 0; i < 2; ++i) {
      const double rate = work[i] / seconds[i];
      cells.push_back(number(rate / per_unit, 2));
      cells.push_back(percent(rate / peak[i]));
    }
    cells.push_back(number(seconds[0] / seconds[1], 2));
    table_.add(cells);
  }

  /// A row of times.
  void add_times(const std::string& name, double flop, const double (&peak)[2], const std::vector<double>& seconds) {
    std::vector<std::string> cells = {name, "ms"};
    for (std::size_t i = 0; i < 2; ++i) {
      cells.push_back(number(1e3 * seconds[i], 3));
      cells.push_back(percent(flop / seconds[i] / peak[i]));
    }
    cells.push_back(number(seconds[0] / seconds[1], 2));
    table_.add(cells);
  }

 private:
  const bench::Options& options_;
  bench::Table table_;
};

// --- kernels ---------------------------------------------------------------------------------------------------------

/// c [m, n] = a [m, k] x b [k, n] in f32 and in f16; b lies in memory as a Linear's weight does, [n, k].
std::vector<double> time_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<bench::Candidate> candidates;
  for (const DType dtype : {f32, f16}) {
    const Tensor a = randn({1, m, k}, dtype, kGpu), b = randn({1, n, k}, dtype, kGpu).transpose(1, 2);
    const Tensor c = empty({1, m, n}, dtype, kGpu);
    candidates.push_back(
        [=] { backend_for(kGpu).gemm(c.view_of_data(), a.view_of_data(), b.view_of_data(), {}, Activation::none); });
  }
  return bench::median_seconds(candidates);
}

Peaks measure_peaks(bool quick) {
  const std::int64_t n = quick ? 16 : 8192, numbers = quick ? 1 << 10 : 1 << 28;
  const std::vector<double> product = time_product(n, n, n);
  const double flop = 2.0 * static_cast<double>(n * n * n);
  const Tensor from = zeros({numbers}, f32, kGpu), to = empty({numbers}, f32, kGpu);
  const double copy =
      bench::median_seconds({[=] { backend_for(kGpu).copy(to.view_of_data(), from.view_of_data()); }}).front();
  return {.flop = {flop / product[0], flop / product[1]}, .bytes = 8.0 * static_cast<double>(numbers) / copy};
}

void time_products(Report& report, const Peaks& peaks, bool quick) {
  struct Shape {
    std::int64_t m, n, k;
  };
  // Squares; the layers of a transformer of width 1024, 4096 tokens; the first layers of the mlp and the cnn.
  for (Shape s : {Shape{1024, 1024, 1024},
                  {2048, 2048, 2048},
                  {4096, 4096, 4096},
                  {4096, 4096, 1024},
                  {4096, 1024, 4096},
                  {64, 256, 784},
                  {128, 128, 3136}}) {
    const std::string name = fmt::format("product {} x {} x {}", s.m, s.n, s.k);
    if (!report.wants(name)) continue;
    if (quick) s = {s.m / 64, s.n / 64, s.k / 64};
    const double flop = 2.0 * static_cast<double>(s.m * s.n * s.k);
    report.add_rates(name, "TFLOP/s", 1e12, {flop, flop}, peaks.flop, time_product(s.m, s.n, s.k));
  }
}

/// Those of ResNet-18 on 64 x 64 images.
void time_convolutions(Report& report, const Peaks& peaks, bool quick) {
  const std::pair<const char*, Convolution> cases[] = {
      {"3x3 64->64 64x64", {.batch = 128, .inputs = 64, .size = 64, .outputs = 64, .filter = 3}},
      {"3x3/2 64->128 64x64", {.batch = 128, .inputs = 64, .size = 64, .outputs = 128, .filter = 3, .stride = 2}},
      {"3x3 256->256 16x16", {.batch = 128, .inputs = 256, .size = 16, .outputs = 256, .filter = 3}},
      {"3x3 512->512 8x8", {.batch = 128, .inputs = 512, .size = 8, .outputs = 512, .filter = 3}},
      {"1x1/2 256->512 16x16",
       {.batch = 128, .inputs = 256, .size = 16, .outputs = 512, .filter = 1, .stride = 2, .padding = 0}},
  };
  const char* const directions[] = {"forward", "input grad", "weight grad"};
  for (auto [name, c] : cases) {
    if (!report.wants(name)) continue;
    if (quick) c.batch = 1, c.inputs /= 32, c.outputs /= 32, c.size /= 8;
    const bench::ConvolutionTensors single(c, f32, kGpu), halves(c, f16, kGpu);
    const std::vector<bench::Candidate> f32s = single.candidates(c.options()), f16s = halves.candidates(c.options());
    const double flop = 1e9 * c.gflop();
    for (std::size_t d = 0; d < 3; ++d)
      report.add_rates(fmt::format("convolution {} {}", name, directions[d]), "TFLOP/s", 1e12, {flop, flop}, peaks.flop,
                       bench::median_seconds({f32s[d], f16s[d]}));
  }
}

/// What memory bounds; bytes are those that cannot be avoided, an activation read once and one written.
void time_passes(Report& report, const Peaks& peaks, bool quick) {
  const Shape shape = quick ? Shape{1, 8, 4, 4} : Shape{128, 64, 64, 64};
  struct Pass {
    const char* name;
    std::function<Tensor(const Tensor&)> run;
  };
  const Tensor weight = ones({shape[1]}, f32, kGpu), bias = zeros({shape[1]}, f32, kGpu);
  const Pass passes[] = {
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"batch norm in training", [=](const Tensor& x) { return batch_norm(x, weight, bias, {}, {}, true); }},
      {"softmax over channels", [](const Tensor& x) { return softmax(x, 1); }},
  };
  for (const Pass& pass : passes) {
    if (!report.wants(pass.name)) continue;
    std::vector<bench::Candidate> candidates;
    for (const DType dtype : {f32, f16})
      candidates.push_back([run = pass.run, x = randn(shape, dtype, kGpu).channels_last()] { run(x); });
    const double numbers = static_cast<double>(shape.numel());
    report.add_rates(pass.name, "GB/s", 1e9, {8 * numbers, 4 * numbers}, {peaks.bytes, peaks.bytes},
                     bench::median_seconds(candidates));
  }
}

// --- training steps --------------------------------------------------------------------------------------------------

/// Times the steps of an epoch, but for the first ones, in which state is made and the step is captured.
class Stopwatch : public Callback {
 public:
  static constexpr std::int64_t kWarmUp = 3;

  int order() const override { return 2000; }
  void on_epoch_begin(Learner&) override { batches_ = 0; }
  void on_batch_end(Learner&) override {
    if (++batches_ != kWarmUp) return;
    backend_for(kGpu).synchronize();
    start_ = bench::now();
  }
  void on_epoch_end(Learner&) override {
    backend_for(kGpu).synchronize();
    seconds_.push_back((bench::now() - start_) / static_cast<double>(batches_ - kWarmUp));
  }
  InGraph in_graph() const override { return InGraph::watches; }

  double median() const { return bench::median(seconds_); }

 private:
  std::int64_t batches_ = 0;
  double start_ = 0;
  std::vector<double> seconds_;  // of a step, one for each epoch
};

/// The training of one model in one precision.
class Training {
 public:
  Training(nn::Sequential model, const bench::TrainingCase& c, bool fp16, bool captured)
      : model_(std::move(model)),
        stopwatch_(std::make_shared<Stopwatch>()),
        learn_({bench::random_images(c), {}}, on_gpu(model_), nn::cross_entropy,
               {.opt = optim::adamw(), .callbacks = {stopwatch_}, .silent = true}) {
    if (fp16) learn_.to_fp16();
    if (captured) learn_.capture_step();
  }

  void run_epoch() { learn_.fit(1); }
  double seconds() const { return stopwatch_->median(); }

 private:
  static nn::Module& on_gpu(nn::Module& model) {
    model.to(kGpu);
    return model;
  }

  nn::Sequential model_;
  std::shared_ptr<Stopwatch> stopwatch_;
  Learner learn_;
};

void time_training(Report& report, const Peaks& peaks, bool quick) {
  for (bench::TrainingCase c :
       {bench::TrainingCase{"mlp", 64, 28, 400}, {"cnn", 128, 28, 200}, {"resnet", 128, 64, 24}}) {
    if (quick) c = {c.model, 1, c.model == "resnet" ? 16 : c.size, Stopwatch::kWarmUp + 1};
    const auto make = [&] { return quick && c.model == "resnet" ? models::resnet18(2) : models::make(c.model); };
    for (const bool captured : {false, true}) {
      const std::string name =
          fmt::format("{0} step ({1} x {2} x {2}){3}", c.model, c.batch, c.size, captured ? " captured" : "");
      if (!report.wants(name)) continue;
      manual_seed(1);
      nn::Sequential model = make();
      const double flop = bench::flop_of_step(model, c);
      Training single(make(), c, false, captured), mixed(make(), c, true, captured);
      for (int epoch = 0; epoch < std::min(5, bench::sampling.samples); ++epoch) {
        single.run_epoch();
        mixed.run_epoch();
      }
      report.add_times(name, flop, peaks.flop, {single.seconds(), mixed.seconds()});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "What a GPU reaches, in f32 and f16.");
  if (const std::string why = cuda::why_unavailable(); !why.empty()) {
    fmt::print(stderr, "bench_gpu: {}\n", why);
    return 77;
  }
  bench::wait_for_work = [] { backend_for(kGpu).synchronize(); };
  const bool quick = options.quick;
  const Peaks peaks = measure_peaks(quick);
  fmt::print("peaks: a large product f32 {:.1f} TFLOP/s, f16 {:.1f} TFLOP/s; a large copy {:.0f} GB/s\n\n",
             1e-12 * peaks.flop[0], 1e-12 * peaks.flop[1], 1e-9 * peaks.bytes);
  Report report(options);
  time_products(report, peaks, quick);
  time_convolutions(report, peaks, quick);
  time_passes(report, peaks, quick);
  time_training(report, peaks, quick);
}
