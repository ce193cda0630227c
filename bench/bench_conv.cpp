// Convolutions in GFLOP/s: forward, and the gradients of the input and of the weight, in f32 and f16; and unfolding
// each image into a matrix for Eigen (im2col) in f32.
//
//   bench_conv [--threads N] [--nchw] [--only TEXT] [--csv FILE]
//
// Images lie in channels-last memory, where halfgrad's convolutions run; --nchw shows what it costs when they do not.

#include "bench/convolution.h"
#include "bench/peers.h"
#include "bench/table.h"

using namespace halfgrad;
using bench::Convolution;
using bench::number;

namespace {

struct Case {
  const char* name;
  Convolution convolution;
  bool transposed = false;  // computes the input gradient forward, and the forward as its input gradient
};

const std::vector<Case> kCases = {
    {"3x3 32->64 28x28", {.batch = 64, .inputs = 32, .size = 28, .outputs = 64, .filter = 3}},
    {"3x3 64->64 14x14", {.batch = 64, .inputs = 64, .size = 14, .outputs = 64, .filter = 3}},
    {"3x3/2 64->128 28x28", {.batch = 64, .inputs = 64, .size = 28, .outputs = 128, .filter = 3, .stride = 2}},
    {"1x1 256->64 14x14", {.batch = 64, .inputs = 256, .size = 14, .outputs = 64, .filter = 1, .padding = 0}},
    {"depthwise 3x3 64 28x28", {.batch = 64, .inputs = 64, .size = 28, .outputs = 64, .filter = 3, .groups = 64}},
    {"first 3x3 1->32 28x28", {.batch = 64, .inputs = 1, .size = 28, .outputs = 32, .filter = 3}},
    {"first 3x3 3->64 32x32", {.batch = 64, .inputs = 3, .size = 32, .outputs = 64, .filter = 3}},
    {"transposed 4x4/2 128->64 8x8",
     {.batch = 64, .inputs = 64, .size = 16, .outputs = 128, .filter = 4, .stride = 2},
     true},
    {"transposed 4x4/2 64->1 14x14",
     {.batch = 64, .inputs = 1, .size = 28, .outputs = 64, .filter = 4, .stride = 2},
     true},
};

/// Forward, input gradient and weight gradient.
std::vector<bench::Candidate> ours(const Case& test, DType dtype, bool nchw) {
  const Convolution& c = test.convolution;
  const bench::ConvolutionTensors tensors(c, dtype, Device::cpu(), nchw);
  std::vector<bench::Candidate> candidates = tensors.candidates(c.options());
  if (test.transposed) {
    candidates[1] = candidates[0];
    candidates[0] = [=] {
      conv_transpose2d(tensors.y, tensors.weight, {}, {.stride = c.stride, .padding = c.padding});
    };
  }
  return candidates;
}

/// The same with Eigen.
std::vector<bench::Candidate> unfolded(const Case& test) {
  const auto peer = std::make_shared<bench::peers::UnfoldedConvolution>(test.convolution);
  std::vector<bench::Candidate> candidates = {[=] { peer->forward(); }, [=] { peer->input_gradient(); },
                                              [=] { peer->weight_gradient(); }};
  if (test.transposed) std::swap(candidates[0], candidates[1]);
  return candidates;
}

}  // namespace

int main(int argc, char** argv) {
  bool nchw = false;
  const bench::Options options(argc, argv, "Convolutions, GFLOP/s.", [&](CLI::App& app) {
    app.add_flag("--nchw", nchw, "images in NCHW memory instead of channels-last");
  });
  bench::peers::use_threads();
  bench::print_machine();
  bench::Table table(
      {"convolution, batch 64", "f32", "f32/peak", "f16", "f16/peak", "Eigen", "f32/Eigen", "f16/f32", "f16/Eigen"},
      options, 43);
  bench::GeometricMean to_eigen, half_to_single, half_to_eigen;
  for (const Case& test : kCases) {
    if (!options.wants(test.name)) continue;
    const std::vector<bench::Candidate> single = ours(test, f32, nchw), halves = ours(test, f16, nchw),
                                        peer = unfolded(test);
    const char* directions[] = {"forward", "input grad", "weight grad"};
    for (std::size_t d = 0; d < 3; ++d) {
      const std::vector<double> seconds = bench::median_seconds({single[d], halves[d], peer[d], bench::FmaPeak::run});
      const double peak = bench::FmaPeak::gflop / seconds[3];
      const auto rate = [&](std::size_t i) { return test.convolution.gflop() / seconds[i]; };
      table.add({fmt::format("{} {}", test.name, directions[d]), number(rate(0)), bench::percent(rate(0) / peak),
                 number(rate(1)), bench::percent(rate(1) / peak), number(rate(2)),
                 number(to_eigen.add(seconds[2] / seconds[0]), 2),
                 number(half_to_single.add(seconds[0] / seconds[1]), 2),
                 number(half_to_eigen.add(seconds[2] / seconds[1]), 2)});
    }
  }
  table.add({"geometric mean", "", "", "", "", "", number(to_eigen.value(), 2), number(half_to_single.value(), 2),
             number(half_to_eigen.value(), 2)});
}
