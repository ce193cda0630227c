// Layer normalisation: a group of threads for each row. Its mean is taken twice, so that a mean of 1000 and a deviation of 1
// cost no digits (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983).

#include "engine/cuda/layer_norm.h"

#include <cmath>

#include "engine/cuda/lines.cuh"

namespace halfgrad::cuda {

namespace {

template <class C>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(Lines lines, Vector weight, Vector bias, double eps) {
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t i = first_task(); i < lines.lines.numel; i += task_step()) {
    const auto line = static_cast<std::uint32_t>(i);
    const Line<C> x(lines, 0, line), y(lines, 1, line), mean_of(lines, 2, line), rstd_of(lines, 3, line);
    Some<C> v, w, b;
    C sum = 0, distances = 0, squares = 0;
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, C(0), v);
      sum += sum_of_some(v);
    });
    const C rough = static_cast<C>(static_cast<double>(sum_of_group(sum)) / n);

    // The sum of the distances from `rough`, which would be 0 without rounding, corrects the mean and the variance.
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, rough, v);
#pragma unroll
      for (C& value : v) value -= rough;
      distances += sum_of_some(v);
#pragma unroll
      for (C& value : v) value *= value;
      squares += sum_of_some(v);
    });
    const double correction = static_cast<double>(sum_of_group(distances)) / n;
    const double mean = static_cast<double>(rough) + correction;
    const double variance = static_cast<double>(sum_of_group(squares)) / n - correction * correction;
    const C rstd = static_cast<C>(1 / std::sqrt(variance + eps)),
            rest = static_cast<C>(static_cast<double>(rough) - mean);
    if (threadIdx.x == 0) {
      store_computed<C>(mean_of.array, 0, static_cast<C>(mean));
      store_computed<C>(rstd_of.array, 0, rstd);
    }
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      x.load(turn, rough, v);
      load_vector(weight, turn, C(1), w);
      load_vector(bias, turn, C(0), b);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) v[k] = (v[k] - rough + rest) * rstd * w[k] + b[k];
      y.store(turn, v);
    });
  }
}

// g = dy * weight and z = (x - mean) * rstd give dx = rstd * (g - mean(g) - z * mean(g z)).
template <class C>
__global__ void __launch_bounds__(kThreads) layer_norm_backward_kernel(Lines lines, Vector weight) {
  const std::uint32_t n = lines.elements.numel;
  for (std::uint64_t i = first_task(); i < lines.lines.numel; i += task_step()) {
    const auto line = static_cast<std::uint32_t>(i);
    const Line<C> x(lines, 0, line), dy(lines, 1, line), dx(lines, 2, line);
    const C mean = load_computed<C>(Line<C>(lines, 3, line).array, 0);
    const C rstd = load_computed<C>(Line<C>(lines, 4, line).array, 0);
    Some<C> z, g;
    const auto load_turn = [&](const Turn<C>& turn) {
      x.load(turn, mean, z);
      load_vector(weight, turn, C(1), g);
      Some<C> d;
      dy.load(turn, C(0), d);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) {
        z[k] = (z[k] - mean) * rstd;
        g[k] *= d[k];
      }
    };
    C sum_g = 0, sum_gz = 0;
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      load_turn(turn);
      sum_g += sum_of_some(g);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) g[k] *= z[k];
      sum_gz += sum_of_some(g);
    });
    const C mean_g = sum_of_group(sum_g) / static_cast<C>(n), mean_gz = sum_of_group(sum_gz) / static_cast<C>(n);
    for_turns<C>(lines, 0, n, [&](const Turn<C>& turn) {
      load_turn(turn);
#pragma unroll
      for (std::uint32_t k = 0; k < kAtOnce<C>; ++k) g[k] = rstd * (g[k] - mean_g - z[k] * mean_gz);
      dx.store(turn, g);
    });
  }
}

// A thread goes down a column, through the rows of one chunk.
template <class C>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(Matrix x, Matrix dy, Vector mean, Vector rstd, std::int64_t rows, std::int64_t columns,
                       std::int64_t chunk, C* dweight, C* dbias) {
  const std::int64_t sums = (rows + chunk - 1) / chunk * columns;
  for (auto i = static_cast<std::int64_t>(first_item()); i < sums; i += static_cast<std::int64_t>(item_step())) {
    const std::int64_t begin = i / columns * chunk, column = i % columns;
    const std::int64_t end = begin + chunk < rows ? begin + chunk : rows;
    C product = 0, sum = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      const C d = load_computed<C>(from(dy.array, r * dy.row_stride + column * dy.column_stride), 0);
      const C v = load_computed<C>(from(x.array, r * x.row_stride + column * x.column_stride), 0);
      product += d * ((v - number_at<C>(mean, r)) * number_at<C>(rstd, r));
      sum += d;
    }
    dweight[i] = product;
    dbias[i] = sum;
  }
}

}  // namespace

void layer_norm(DType compute, const Lines& lines, const Vector& weight, const Vector& bias, double eps,
                const Queue& queue) {
  launch("layer_norm", compute == f64 ? layer_norm_kernel<double> : layer_norm_kernel<float>,
         grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group), queue.stream, lines, weight, bias, eps);
}

void layer_norm_backward(DType compute, const Lines& lines, const Vector& weight, const Queue& queue) {
  launch("the gradient of layer_norm",
         compute == f64 ? layer_norm_backward_kernel<double> : layer_norm_backward_kernel<float>,
         grid_of(lines.lines.numel, lines.group, queue), block_of(lines.group), queue.stream, lines, weight);
}

void layer_norm_column_sums(DType compute, const Matrix& x, const Matrix& dy, const Vector& mean, const Vector& rstd,
                            std::int64_t rows, std::int64_t columns, std::int64_t chunk, void* dweight, void* dbias,
                            const Queue& queue) {
  const auto run = [&]<class C>(C) {
    launch("the gradient of layer_norm's weight", column_sums_kernel<C>,
           grid_for(static_cast<std::uint64_t>((rows + chunk - 1) / chunk * columns), queue), kThreads, queue.stream, x,
           dy, mean, rstd, rows, columns, chunk, static_cast<C*>(dweight), static_cast<C*>(dbias));
  };
  compute == f64 ? run(double()) : run(float());
}

}  // namespace halfgrad::cuda
