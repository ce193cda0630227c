// Matrix products in GFLOP/s: halfgrad in f32 and f16, Eigen, OpenBLAS, and the share of the machine's FMA peak.
//
//   bench_gemm [--threads N] [--only TEXT] [--csv FILE]
//
// "cast f16" is what one would do without kernels for half: convert both operands, multiply in f32 with Eigen, convert
// back. The linear layers are those of examples/models.h: forward, and the gradients of the input and of the weight.

#include <cstdlib>

#include "bench/peers.h"
#include "bench/table.h"
#include "engine/tensor.h"

#ifdef BENCH_OPENBLAS
#include <cblas.h>
#include <unistd.h>
#endif

using namespace halfgrad;
using bench::number;
using bench::peers::Product;

namespace {

struct Case {
  std::string name;
  Product product;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048})
    cases.push_back({fmt::format("square {}", n), {n, n, n}});
  const auto linear = [&](const std::string& model, std::int64_t batch, std::int64_t in, std::int64_t out) {
    const std::string name = fmt::format("{} {}->{} ", model, in, out);
    cases.push_back({name + "forward", {.m = batch, .n = out, .k = in, .b_transposed = true}});
    cases.push_back({name + "input grad", {.m = batch, .n = in, .k = out}});
    cases.push_back({name + "weight grad", {.m = out, .n = in, .k = batch, .a_transposed = true}});
  };
  linear("mlp", 64, 784, 256);
  linear("mlp", 64, 256, 128);
  linear("mlp", 64, 128, 10);
  linear("cnn", 128, 3136, 128);
  linear("cnn", 128, 128, 10);
  linear("resnet", 64, 512, 10);
  cases.push_back({"one row", {.m = 1, .n = 1024, .k = 1024, .b_transposed = true}});
  return cases;
}

struct Operands {
  Tensor a, b, c;  // [1, m, k], [1, k, n], [1, m, n]

  Operands(const Product& p, DType dtype) : c(empty({1, p.m, p.n}, dtype)) {
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
      return transposed ? randn({1, columns, rows}, dtype).transpose(1, 2) : randn({1, rows, columns}, dtype);
    };
    a = matrix(p.m, p.k, p.a_transposed);
    b = matrix(p.k, p.n, p.b_transposed);
  }

  bench::Candidate ours() const {
    return [c = c.view_of_data(), a = a.view_of_data(), b = b.view_of_data()] {
      backend_for(Device::cpu()).gemm(c, a, b, {}, Activation::none);
    };
  }
};

#ifdef BENCH_OPENBLAS

/// OpenBLAS chooses its kernels while it is loaded, and Debian's takes slow ones on processors that are newer than it
/// is. So the program starts once more with their name in its environment.
void choose_openblas_kernels(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") || !__builtin_cpu_supports("avx512f")) return;
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
  execv("/proc/self/exe", argv);
}

bench::Candidate openblas(const Product& p, float* c, const float* a, const float* b) {
  const auto stored = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t n) { return static_cast<blasint>(n); };
  return [=] {
    cblas_sgemm(CblasRowMajor, stored(p.a_transposed), stored(p.b_transposed), size(p.m), size(p.n), size(p.k), 1.0F, a,
                size(p.a_transposed ? p.m : p.k), b, size(p.b_transposed ? p.k : p.n), 0.0F, c, size(p.n));
  };
}

#else

void choose_openblas_kernels(char**) {}
bench::Candidate openblas(const Product&, float*, const float*, const float*) { return {}; }

#endif

}  // namespace

int main(int argc, char** argv) {
  choose_openblas_kernels(argv);
  const bench::Options options(argc, argv, "Matrix products, GFLOP/s.");
  bench::peers::use_threads();
#ifdef BENCH_OPENBLAS
  openblas_set_num_threads(options.threads);
#endif
  bench::print_machine();
  bench::Table table({"product", "M", "N", "K", "f32", "f32/peak", "f16", "f16/peak", "Eigen", "OpenBLAS", "cast f16",
                      "f32/Eigen", "f32/OpenBLAS", "f16/f32", "f16/cast"},
                     options, 29);
  bench::GeometricMean to_eigen, to_openblas, half_to_single, half_to_cast;
  for (const Case& test : all_cases()) {
    if (!options.wants(test.name)) continue;
    const Product& p = test.product;
    const Operands singles(p, f32), halves(p, f16);
    float *c = singles.c.data<float>(), *a = singles.a.data<float>(), *b = singles.b.data<float>();
    half *hc = halves.c.data<half>(), *ha = halves.a.data<half>(), *hb = halves.b.data<half>();
    bench::peers::HalfProduct cast(p);
    const std::vector<double> seconds =
        bench::median_seconds({singles.ours(), halves.ours(), [=] { bench::peers::multiply(p, c, a, b); },
                               openblas(p, c, a, b), [&cast, hc, ha, hb] { cast(hc, ha, hb); }, bench::FmaPeak::run});
    const double peak = bench::FmaPeak::gflop / seconds[5];
    const auto rate = [&](std::size_t i) { return p.gflop() / seconds[i]; };
    const auto ratio = [&](bench::GeometricMean& mean, std::size_t ours, std::size_t peer) {
      return number(mean.add(seconds[peer] / seconds[ours]), 2);
    };
    table.add({test.name, std::to_string(p.m), std::to_string(p.n), std::to_string(p.k), number(rate(0)),
               bench::percent(rate(0) / peak), number(rate(1)), bench::percent(rate(1) / peak), number(rate(2)),
               number(rate(3)), number(rate(4)), ratio(to_eigen, 0, 2), ratio(to_openblas, 0, 3),
               ratio(half_to_single, 1, 0), ratio(half_to_cast, 1, 4)});
  }
  table.add({"geometric mean", "", "", "", "", "", "", "", "", "", "", number(to_eigen.value(), 2),
             number(to_openblas.value(), 2), number(half_to_single.value(), 2), number(half_to_cast.value(), 2)});
}
