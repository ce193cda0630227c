// Matrix products in GFLOP/s: halfgrad in f32 and f16, Eigen, and the speed limit of the machine.
//
//   bench_gemm [threads]
//
// "Eigen f16" is what one would do without kernels for half: convert both operands, multiply in f32, convert
// back.

#include <Eigen/Core>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/timing.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/kernels.h"

using namespace halfgrad;

namespace {

struct Case {
  std::int64_t m, n, k;
  char a, b;  // 'N': row-major, 'T': its transpose is
  const char* what;
};

constexpr Case kCases[] = {
    {64, 64, 64, 'N', 'N', ""},
    {128, 128, 128, 'N', 'N', ""},
    {256, 256, 256, 'N', 'N', ""},
    {512, 512, 512, 'N', 'N', ""},
    {1024, 1024, 1024, 'N', 'N', ""},
    {2048, 2048, 2048, 'N', 'N', ""},
    {128, 256, 784, 'N', 'T', "linear layer"},
    {128, 784, 256, 'N', 'N', "its input gradient"},
    {256, 784, 128, 'T', 'N', "its weight gradient"},
    {128, 10, 256, 'N', 'T', "last layer"},
    {10, 256, 128, 'T', 'N', "its weight gradient"},
    {1, 1024, 1024, 'N', 'T', "one row"},
    {1, 1024, 1024, 'N', 'N', "one row"},
    {4, 1024, 1024, 'N', 'T', "few rows"},
    {1024, 1, 1024, 'N', 'N', "one column"},
};

template <class T>
struct Operands {
  std::vector<T> a, b, c;
  View va, vb, vc;
  Operands(const Case& s, DType dtype) : a(s.m * s.k), b(s.k * s.n), c(s.m * s.n) {
    std::uint32_t seed = 1;
    for (std::vector<T>* v : {&a, &b})
      for (T& x : *v)
        x = T(static_cast<float>(static_cast<std::int32_t>(seed = seed * 1664525 + 1013904223)) * 0x1p-31F);
    va = {a.data(), dtype, {1, s.m, s.k}, s.a == 'N' ? Strides{0, s.k, 1} : Strides{0, 1, s.m}};
    vb = {b.data(), dtype, {1, s.k, s.n}, s.b == 'N' ? Strides{0, s.n, 1} : Strides{0, 1, s.k}};
    vc = {c.data(), dtype, {1, s.m, s.n}, Strides{0, s.n, 1}};
  }
};

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowMajorHalf = Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void eigen_multiply(const Case& s, const float* a, const float* b, float* c) {
  using Map = Eigen::Map<const RowMajor>;
  Eigen::Map<RowMajor> out(c, s.m, s.n);
  if (s.a == 'T') {
    out.noalias() = Map(a, s.k, s.m).transpose() * Map(b, s.k, s.n);
  } else if (s.b == 'T') {
    out.noalias() = Map(a, s.m, s.k) * Map(b, s.n, s.k).transpose();
  } else {
    out.noalias() = Map(a, s.m, s.k) * Map(b, s.k, s.n);
  }
}

void eigen_multiply_half(const Case& s, const half* a, const half* b, half* c) {
  using Map = Eigen::Map<const RowMajorHalf>;
  static RowMajor wide_a, wide_b, wide_c;
  wide_a = Map(reinterpret_cast<const Eigen::half*>(a), s.a == 'N' ? s.m : s.k, s.a == 'N' ? s.k : s.m).cast<float>();
  wide_b = Map(reinterpret_cast<const Eigen::half*>(b), s.b == 'N' ? s.k : s.n, s.b == 'N' ? s.n : s.k).cast<float>();
  wide_c.resize(s.m, s.n);
  eigen_multiply(s, wide_a.data(), wide_b.data(), wide_c.data());
  Eigen::Map<RowMajorHalf>(reinterpret_cast<Eigen::half*>(c), s.m, s.n) = wide_c.cast<Eigen::half>();
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  cpu::set_num_threads(threads);
  const double peak = bench::fma_peak();
  std::printf("%s kernels, %d thread(s); FMA peak %.0f GFLOP/s; Eigen uses one thread\n\n", cpu::kernels().isa, threads,
              peak);
  std::printf("%-6s%-6s%-6s%-4s%8s%8s%8s%11s%11s  %s\n", "M", "N", "K", "", "f32", "f16", "% peak", "Eigen f32",
              "Eigen f16", "");
  for (const Case& s : kCases) {
    Operands<float> single(s, f32);
    Operands<half> halves(s, f16);
    const double flop = 2e-9 * s.m * s.n * s.k;
    const double ours = flop / bench::median_seconds([&] { cpu::gemm(single.vc, single.va, single.vb, {}); });
    const double ours_half = flop / bench::median_seconds([&] { cpu::gemm(halves.vc, halves.va, halves.vb, {}); });
    const double eigen =
        flop / bench::median_seconds([&] { eigen_multiply(s, single.a.data(), single.b.data(), single.c.data()); });
    const double eigen_half = flop / bench::median_seconds([&] {
                                eigen_multiply_half(s, halves.a.data(), halves.b.data(), halves.c.data());
                              });
    std::printf("%-6ld%-6ld%-6ld%c%c  %8.1f%8.1f%8.0f%11.1f%11.1f  %s\n", static_cast<long>(s.m),
                static_cast<long>(s.n), static_cast<long>(s.k), s.a, s.b, ours, ours_half, 100 * ours / peak, eigen,
                eigen_half, s.what);
  }
}
