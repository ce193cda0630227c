// A matrix product from three loops to halfgrad's kernel, a step at a time, with the speed of each: the program behind
// docs/matrix_products.md, which explains the steps.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/table.h"
#include "engine/backend.h"
#include "engine/ops/elementwise.h"
#include "engine/random.h"
#include "engine/tensor.h"

using namespace halfgrad;
using bench::number;

namespace {

// n is a multiple of every block below, so that the steps need no code for what is left over.
constexpr std::int64_t n = 1344;

// --- 1 ---------------------------------------------------------------------------------------------------------------

void three_loops(float* c, const float* a, const float* b) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

// --- 2 ---------------------------------------------------------------------------------------------------------------

void along_rows(float* c, const float* a, const float* b) {
  std::fill_n(c, n * n, 0.0F);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

// --- 3 and 4 ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int kLanes = 16, kMostRows = 14;  // 14 x 2 of the 32 registers hold sums
#elif defined(__AVX__)
constexpr int kLanes = 8, kMostRows = 6;  // 6 x 2 of 16
#else
constexpr int kLanes = 4, kMostRows = 6;
#endif
constexpr int kColumns = 2 * kLanes;
static_assert(n % kMostRows == 0 && n % 4 == 0 && n % kColumns == 0);

typedef float vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

const vector& load(const float* p) { return *reinterpret_cast<const vector*>(p); }

// kRows x kColumns sums of c stay in registers while k runs. Rows of a and c are n apart, those of b b_row.
template <int kRows>
void tile(float* c, const float* a, const float* b, std::int64_t b_row, std::int64_t depth, bool add) {
  vector sum[kRows][2] = {};
  for (std::int64_t k = 0; k < depth; ++k, b += b_row) {
    const vector left = load(b), right = load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      sum[i][0] += a[i * n + k] * left;
      sum[i][1] += a[i * n + k] * right;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
    for (int half = 0; half < 2; ++half) {
      float* to = c + i * n + half * kLanes;
      const vector result = add ? load(to) + sum[i][half] : sum[i][half];
      std::memcpy(to, &result, sizeof result);
    }
}

template <int kRows>
void in_tiles(float* c, const float* a, const float* b) {
  for (std::int64_t i = 0; i < n; i += kRows)
    for (std::int64_t j = 0; j < n; j += kColumns) tile<kRows>(c + i * n + j, a + i * n, b + j, n, n, false);
}

// --- 5 ---------------------------------------------------------------------------------------------------------------

// Panel j holds kColumns columns of b, one row after the other.
void pack(float* panels, const float* b, std::int64_t depth) {
  for (std::int64_t j = 0; j < n; j += kColumns)
    for (std::int64_t k = 0; k < depth; ++k, panels += kColumns) std::copy_n(b + k * n + j, kColumns, panels);
}

template <int kRows>
void packed(float* c, const float* a, const float* b, std::vector<float>& panels) {
  pack(panels.data(), b, n);
  for (std::int64_t i = 0; i < n; i += kRows)
    for (std::int64_t j = 0; j < n; j += kColumns)
      tile<kRows>(c + i * n + j, a + i * n, panels.data() + j * n, kColumns, n, false);
}

// --- 6 ---------------------------------------------------------------------------------------------------------------

constexpr std::int64_t kDepth = n / 4;    // of k at a time
constexpr std::int64_t kRowsOfA = n / 4;  // kRowsOfA x kDepth of a, and a panel of b, stay in the second-level cache
static_assert(n % kDepth == 0 && n % kRowsOfA == 0 && kRowsOfA % kMostRows == 0);

template <int kRows>
void in_blocks(float* c, const float* a, const float* b, std::vector<float>& panels) {
  for (std::int64_t k = 0; k < n; k += kDepth) {
    pack(panels.data(), b + k * n, kDepth);
    for (std::int64_t first = 0; first < n; first += kRowsOfA)
      for (std::int64_t j = 0; j < n; j += kColumns)
        for (std::int64_t i = first; i < first + kRowsOfA; i += kRows)
          tile<kRows>(c + i * n + j, a + i * n + k, panels.data() + j * kDepth, kColumns, kDepth, k > 0);
  }
}

// --- the table -------------------------------------------------------------------------------------------------------

struct Step {
  std::string name;
  bench::Candidate run;
};

// Whether c is the product, up to the rounding of sums of n products.
bool is_product(const Tensor& c, const Tensor& expected) {
  const std::vector<float> x = c.to_vector<float>(), y = expected.to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) < 1e-3F)) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, "A matrix product from three loops to halfgrad's kernel, GFLOP/s.");
  bench::sampling.samples = std::min(bench::sampling.samples, 5);  // three loops take seconds
  bench::print_machine();
  bench::Table table({"step", "GFLOP/s", "of peak", "to the one before"}, options, 42);

  manual_seed(1);
  const Tensor a = randn({n, n}), b = randn({n, n}), expected = empty({n, n});
  Tensor c = empty({n, n});
  float* const to = c.data<float>();
  const float *left = a.data<float>(), *right = b.data<float>();
  three_loops(expected.data<float>(), left, right);
  std::vector<float> panels(static_cast<std::size_t>(n * n));
  const auto multiply = [](const Tensor& c, const Tensor& a, const Tensor& b) {
    const auto view = [](const Tensor& x) { return x.unsqueeze(0).view_of_data(); };
    return [c = view(c), a = view(a), b = view(b)] { backend_for(Device::cpu()).gemm(c, a, b, {}, Activation::none); };
  };
  const Tensor half_a = cast(a, f16), half_b = cast(b, f16), half_c = empty({n, n}, f16);
  const std::vector<Step> steps = {
      {"1 three loops", [=] { three_loops(to, left, right); }},
      {"2 the inner loop along rows", [=] { along_rows(to, left, right); }},
      {fmt::format("3 a tile of 4 x {} in registers", kColumns), [=] { in_tiles<4>(to, left, right); }},
      {fmt::format("4 a tile of {} x {}", kMostRows, kColumns), [=] { in_tiles<kMostRows>(to, left, right); }},
      {"5 b in panels", [=, &panels] { packed<kMostRows>(to, left, right, panels); }},
      {"6 blocks for the caches", [=, &panels] { in_blocks<kMostRows>(to, left, right, panels); }},
      {"halfgrad, f32", multiply(c, a, b)},
      {"halfgrad, f16", multiply(half_c, half_a, half_b)}};

  double before = NAN;
  for (const Step& step : steps) {
    if (!options.wants(step.name)) continue;
    c.fill_(0);
    step.run();
    if (step.name != steps.back().name && !is_product(c, expected)) {
      fmt::print(stderr, "bench_gemm_steps: '{}' gave another product than three loops\n", step.name);
      return 1;
    }
    const std::vector<double> seconds = bench::median_seconds({step.run, bench::FmaPeak::run});
    const double rate = 2e-9 * n * n * n / seconds[0];
    table.add(
        {step.name, number(rate), bench::percent(rate * seconds[1] / bench::FmaPeak::gflop), number(rate / before, 2)});
    before = rate;
  }
}
