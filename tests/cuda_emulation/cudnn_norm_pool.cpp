// cuDNN's batch normalisation and average pooling. The persistent mode takes channels in fours only, so that what is done else
// is tested, too.

#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dnn_descriptors.h"

using namespace cuda_emulation;

namespace {

Existing<cudnnPoolingStruct>& poolings() {
  static auto* const all = new Existing<cudnnPoolingStruct>("a cuDNN pooling descriptor");
  return *all;
}

bool is_same(const Tensor4& a, const Tensor4& b) {
  return a.type == b.type && a.size == b.size && a.stride == b.stride;
}

// Batch normalisation of the channels of f16 or f32, whose parameters are f32.
bool can_normalize(const Tensor4& x, const Tensor4& numbers, cudnnBatchNormMode_t mode) {
  return (mode == CUDNN_BATCHNORM_SPATIAL || (mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT && x.size[1] % 4 == 0)) &&
         x.type != CUDNN_DATA_DOUBLE && numbers.type == CUDNN_DATA_FLOAT &&
         numbers.size == std::array<int, 4>{1, x.size[1], 1, 1};
}

void check_numbers(const char* call, const char* name, const void* data, const Tensor4& numbers) {
  check_operand(call, name, data, Number::single, numbers.count());
}

// f(n, h, w) for the positions of a channel.
template <class F>
void for_each_position(const Tensor4& x, F&& f) {
  for_each_index({x.size[0], 1, x.size[2], x.size[3]}, [&](int n, int, int h, int w) { f(n, h, w); });
}

// f(rows, columns, how many an average divides by) of each window.
struct Windows {
  cudnnPoolingStruct how;
  Tensor4 x;

  template <class F>
  void for_window(int i, int j, F&& f) const {
    const int begin[2] = {i * how.stride[0] - how.padding[0], j * how.stride[1] - how.padding[1]};
    const int h0 = std::max(begin[0], 0), h1 = std::min(begin[0] + how.window[0], x.size[2]);
    const int w0 = std::max(begin[1], 0), w1 = std::min(begin[1] + how.window[1], x.size[3]);
    const int size =
        how.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? how.window[0] * how.window[1] : (h1 - h0) * (w1 - w0);
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w) f(h, w, size);
  }
};

cudnnStatus_t check_pooling(const cudnnPoolingStruct& how, const Tensor4& x, const Tensor4& y) {
  for (std::size_t d : {std::size_t{0}, std::size_t{1}})
    if (how.padding[d] >= how.window[d] ||
        (x.size[2 + d] + 2 * how.padding[d] - how.window[d]) / how.stride[d] + 1 != y.size[2 + d])
      return CUDNN_STATUS_BAD_PARAM;
  if (x.type != y.type || x.size[0] != y.size[0] || x.size[1] != y.size[1]) return CUDNN_STATUS_BAD_PARAM;
  const bool is_average = how.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ||
                          how.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
  return is_average ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha,
                                                     const void* beta, const cudnnTensorDescriptor_t x_its,
                                                     const void* x, const cudnnTensorDescriptor_t y_its, void* y,
                                                     const cudnnTensorDescriptor_t numbers_its, const void* weight,
                                                     const void* bias, double, void* running_mean, void* running_var,
                                                     double eps, void* mean, void* rstd) {
  const std::lock_guard lock(everything());
  constexpr const char* kCall = "cudnnBatchNormalizationForwardTraining";
  cudaStream_t const stream = dnn_handles().checked(handle).stream;
  const Tensor4 its = tensors().checked(x_its), numbers = tensors().checked(numbers_its);
  if (!is_same(its, tensors().checked(y_its)) || eps < CUDNN_BN_MIN_EPSILON) return CUDNN_STATUS_BAD_PARAM;
  if (!can_normalize(its, numbers, mode) || running_mean || running_var) return CUDNN_STATUS_NOT_SUPPORTED;
  check_operand(kCall, "x", x, its.number(), its.count());
  check_operand(kCall, "y", y, its.number(), its.count());
  for (const void* operand : {weight, bias, static_cast<const void*>(mean), static_cast<const void*>(rstd)})
    check_numbers(kCall, "a parameter or statistic", operand, numbers);
  const Blend blend(Number::single, alpha, beta);
  run_call(kCall, stream, [=] {
    for (int c = 0; c < its.size[1]; ++c) {
      const double count = static_cast<double>(its.count()) / its.size[1];
      const auto value = [&](int n, int h, int w) { return read<float>(its.number(), x, its.at(n, c, h, w)); };
      double sum = 0, squares = 0;
      for_each_position(its, [&](int n, int h, int w) { sum += value(n, h, w); });
      const double center = sum / count;
      for_each_position(its, [&](int n, int h, int w) { squares += std::pow(value(n, h, w) - center, 2); });
      const auto m = static_cast<float>(center), r = static_cast<float>(1 / std::sqrt(squares / count + eps));
      write(Number::single, mean, c, m);
      write(Number::single, rstd, c, r);
      const float scale = read<float>(Number::single, weight, c), shift = read<float>(Number::single, bias, c);
      for_each_position(its, [&](int n, int h, int w) {
        blend(its.number(), y, its.at(n, c, h, w), (value(n, h, w) - m) * r * scale + shift);
      });
    }
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha,
                                              const void* beta, const void* alpha_parameters,
                                              const void* beta_parameters, const cudnnTensorDescriptor_t x_its,
                                              const void* x, const cudnnTensorDescriptor_t dy_its, const void* dy,
                                              const cudnnTensorDescriptor_t dx_its, void* dx,
                                              const cudnnTensorDescriptor_t numbers_its, const void* weight,
                                              void* dweight, void* dbias, double eps, const void* mean,
                                              const void* rstd) {
  const std::lock_guard lock(everything());
  constexpr const char* kCall = "cudnnBatchNormalizationBackward";
  cudaStream_t const stream = dnn_handles().checked(handle).stream;
  const Tensor4 its = tensors().checked(x_its), numbers = tensors().checked(numbers_its);
  if (!is_same(its, tensors().checked(dy_its)) || !is_same(its, tensors().checked(dx_its)) ||
      eps < CUDNN_BN_MIN_EPSILON)
    return CUDNN_STATUS_BAD_PARAM;
  if (!can_normalize(its, numbers, mode)) return CUDNN_STATUS_NOT_SUPPORTED;
  for (const void* operand : {x, dy, static_cast<const void*>(dx)})
    check_operand(kCall, "x, dy or dx", operand, its.number(), its.count());
  for (const void* operand : {weight, static_cast<const void*>(dweight), static_cast<const void*>(dbias), mean, rstd})
    check_numbers(kCall, "a parameter, its gradient or a statistic", operand, numbers);
  const Blend blend(Number::single, alpha, beta), blend_parameters(Number::single, alpha_parameters, beta_parameters);
  run_call(kCall, stream, [=] {
    for (int c = 0; c < its.size[1]; ++c) {
      const double count = static_cast<double>(its.count()) / its.size[1];
      const float m = read<float>(Number::single, mean, c), r = read<float>(Number::single, rstd, c);
      const auto gradient = [&](int n, int h, int w) { return read<float>(its.number(), dy, its.at(n, c, h, w)); };
      const auto z = [&](int n, int h, int w) { return (read<float>(its.number(), x, its.at(n, c, h, w)) - m) * r; };
      double sum = 0, sum_z = 0;
      for_each_position(its, [&](int n, int h, int w) {
        sum += gradient(n, h, w);
        sum_z += static_cast<double>(gradient(n, h, w)) * z(n, h, w);
      });
      blend_parameters(Number::single, dbias, c, static_cast<float>(sum));
      blend_parameters(Number::single, dweight, c, static_cast<float>(sum_z));
      const float scale = read<float>(Number::single, weight, c) * r;
      const auto mean_dy = static_cast<float>(sum / count), mean_dyz = static_cast<float>(sum_z / count);
      for_each_position(its, [&](int n, int h, int w) {
        blend(its.number(), dx, its.at(n, c, h, w), scale * (gradient(n, h, w) - mean_dy - z(n, h, w) * mean_dyz));
      });
    }
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* pooling) {
  const std::lock_guard lock(everything());
  *pooling = poolings().add(new cudnnPoolingStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling) {
  const std::lock_guard lock(everything());
  poolings().remove(pooling);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t, int window_h, int window_w, int pad_h, int pad_w,
                                          int stride_h, int stride_w) {
  const std::lock_guard lock(everything());
  if (window_h < 1 || window_w < 1 || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1)
    return CUDNN_STATUS_BAD_PARAM;
  poolings().checked(pooling) = {mode, {window_h, window_w}, {pad_h, pad_w}, {stride_h, stride_w}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void* alpha,
                                  const cudnnTensorDescriptor_t x_its, const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t y_its, void* y) {
  const std::lock_guard lock(everything());
  constexpr const char* kCall = "cudnnPoolingForward";
  cudaStream_t const stream = dnn_handles().checked(handle).stream;
  const Tensor4 in = tensors().checked(x_its), out = tensors().checked(y_its);
  const Windows windows{poolings().checked(pooling), in};
  if (const cudnnStatus_t status = check_pooling(windows.how, in, out); status != CUDNN_STATUS_SUCCESS) return status;
  check_operand(kCall, "x", x, in.number(), in.count());
  check_operand(kCall, "y", y, out.number(), out.count());
  const Blend blend(in.number(), alpha, beta);
  run_call(kCall, stream, [=] {
    in_compute_type(in.number(), [&]<class C>(C) {
      for_each_index(out.size, [&](int n, int c, int i, int j) {
        C sum = 0, count = 1;
        windows.for_window(i, j, [&](int h, int w, int size) {
          sum += read<C>(in.number(), x, in.at(n, c, h, w));
          count = static_cast<C>(size);
        });
        blend(out.number(), y, out.at(n, c, i, j), sum / count);
      });
    });
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void* alpha,
                                   const cudnnTensorDescriptor_t y_its, const void* y,
                                   const cudnnTensorDescriptor_t dy_its, const void* dy,
                                   const cudnnTensorDescriptor_t x_its, const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t dx_its, void* dx) {
  const std::lock_guard lock(everything());
  constexpr const char* kCall = "cudnnPoolingBackward";
  cudaStream_t const stream = dnn_handles().checked(handle).stream;
  const Tensor4 in = tensors().checked(dx_its), out = tensors().checked(dy_its);
  const Windows windows{poolings().checked(pooling), in};
  if (const cudnnStatus_t status = check_pooling(windows.how, in, out); status != CUDNN_STATUS_SUCCESS) return status;
  if (!is_same(tensors().checked(x_its), in) || !is_same(tensors().checked(y_its), out)) return CUDNN_STATUS_BAD_PARAM;
  for (const void* operand : {x, static_cast<const void*>(dx)})
    check_operand(kCall, "x or dx", operand, in.number(), in.count());
  for (const void* operand : {y, dy}) check_operand(kCall, "y or dy", operand, out.number(), out.count());
  const Blend blend(in.number(), alpha, beta);
  run_call(kCall, stream, [=] {
    in_compute_type(in.number(), [&]<class C>(C) {
      std::vector<C> sums(static_cast<std::size_t>(in.count()), C(0));
      for_each_index(out.size, [&](int n, int c, int i, int j) {
        const C gradient = read<C>(out.number(), dy, out.at(n, c, i, j));
        windows.for_window(i, j, [&](int h, int w, int size) {
          sums[static_cast<std::size_t>(in.at(n, c, h, w))] += gradient / static_cast<C>(size);
        });
      });
      for (std::size_t i = 0; i < sums.size(); ++i) blend(in.number(), dx, static_cast<std::int64_t>(i), sums[i]);
    });
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
