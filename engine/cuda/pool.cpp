// Pooling on the GPU. Averages over equal windows in f16 and f32 are cuDNN's. Its maximum tells neither where it was nor, for
// zeros and NaN, which one of them it is; this and the rest are our own kernels (pool.cu).

#include "engine/cuda/pool.h"

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/dnn.h"
#include "engine/error.h"

namespace halfgrad {

namespace {

using cuda::Elements;
using cuda::Factors;
using cuda::Images;
using cuda::Layout;
using cuda::Pool;
using cuda::PoolAxis;
using cuda::Temporary;

// --- our own kernels -------------------------------------------------------------------------------------------------

Images images_of(const View& v) {
  return v ? Images{v.data, v.strides[0], v.strides[1], v.strides[2], v.strides[3]} : Images{};
}

Elements elements_of(const char* op, const View& v) {
  check(v.numel() <= INT32_MAX,
        "{}: a tensor of shape {} has {} elements, on a GPU expected at most {}: use a smaller batch", op, v.shape,
        v.numel(), INT32_MAX);
  const auto divisor = [&](std::size_t d) { return cuda::Divisor(static_cast<std::uint32_t>(v.shape[d])); };
  return {static_cast<std::uint32_t>(v.numel()), v.strides[1] == 1, divisor(1), divisor(2), divisor(3)};
}

PoolAxis axis_of(const char* op, const PoolGeometry& g, int axis, const View& x, const View& y) {
  const auto at = static_cast<std::size_t>(2 + axis);
  const std::int64_t largest =
      g.adaptive ? (x.shape[at] + 1) * (y.shape[at] + 1)
                 : x.shape[at] + 2 * g.padding[axis] + g.dilation[axis] * g.kernel[axis] + g.stride[axis];
  check(largest <= INT32_MAX, "{}: windows of {} on a side of {} are too large for a GPU; use the device cpu", op,
        g.kernel[axis], x.shape[at]);
  const auto number = [](std::int64_t i) { return static_cast<std::int32_t>(i); };
  return {number(x.shape[at]),     number(y.shape[at]),      number(g.kernel[axis]), number(g.stride[axis]),
          number(g.padding[axis]), number(g.dilation[axis]), g.count_include_pad,    g.adaptive};
}

Pool pool_of(const char* op, const View& x, const View& y, const View& index, const PoolGeometry& g) {
  return {x.dtype,
          images_of(x),
          images_of(y),
          images_of(index),
          elements_of(op, x),
          elements_of(op, y),
          axis_of(op, g, 0, x, y),
          axis_of(op, g, 1, x, y)};
}

// --- cuDNN -----------------------------------------------------------------------------------------------------------

using PoolingDescriptor = cuda::Owned<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;

struct DnnPool {
  PoolingDescriptor how;
  cuda::TensorDescriptor x, y;
};

// How cuDNN makes these averages; nothing when it cannot.
std::optional<DnnPool> average_by_dnn(const char* op, const View& x, const View& y, const PoolGeometry& g) {
  if (g.adaptive || x.dtype == f64) return std::nullopt;
  for (Layout layout : {Layout::channels_last, Layout::planes}) {
    if (!cuda::lies_in(layout, x) || !cuda::lies_in(layout, y)) continue;
    cudnnPoolingDescriptor_t how = nullptr;
    HALFGRAD_CUDNN(cudnnCreatePoolingDescriptor(&how));
    DnnPool pool{PoolingDescriptor(how), cuda::describe(op, x.dtype, x.shape, layout),
                 cuda::describe(op, y.dtype, y.shape, layout)};
    const auto number = [](std::int64_t i) { return static_cast<int>(i); };
    HALFGRAD_CUDNN(cudnnSetPooling2dDescriptor(
        how,
        g.count_include_pad ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
        CUDNN_PROPAGATE_NAN, number(g.kernel[0]), number(g.kernel[1]), number(g.padding[0]), number(g.padding[1]),
        number(g.stride[0]), number(g.stride[1])));
    return pool;
  }
  return std::nullopt;
}

}  // namespace

void CudaBackend::max_pool2d(const View& y, const View& index, const View& x, const PoolGeometry& g) {
  cuda::max_pool(pool_of("max_pool2d", x, y, index, g), queue());
}

void CudaBackend::max_pool2d_backward(const View& dx, const View& dy, const View& index) {
  const Temporary memory(*this, i32, {dx.numel() + dy.numel()}, {1});
  cuda::max_pool_backward(pool_of("max_pool2d", dx, dy, index, {}), memory.view.data, queue());
}

void CudaBackend::avg_pool2d(const View& y, const View& x, const PoolGeometry& g) {
  queue();
  if (const auto pool = average_by_dnn("avg_pool2d", x, y, g)) {
    const Factors factors(f32);
    const cudnnStatus_t status = dnn().with_handle([&](cudnnHandle_t handle) {
      return cudnnPoolingForward(handle, pool->how.get(), factors.alpha(), pool->x.get(), x.data, factors.beta(),
                                 pool->y.get(), y.data);
    });
    if (cuda::is_done(status, "cudnnPoolingForward")) return;
  }
  cuda::average_pool(pool_of("avg_pool2d", x, y, {}, g), queue());
}

void CudaBackend::avg_pool2d_backward(const View& dx, const View& dy, const PoolGeometry& g) {
  queue();
  if (const auto pool = average_by_dnn("avg_pool2d", dx, dy, g)) {
    const Factors factors(f32);
    // The gradient of an average needs no x and no y, of which cuDNN wants to be told nevertheless.
    const cudnnStatus_t status = dnn().with_handle([&](cudnnHandle_t handle) {
      return cudnnPoolingBackward(handle, pool->how.get(), factors.alpha(), pool->y.get(), dy.data, pool->y.get(),
                                  dy.data, pool->x.get(), dx.data, factors.beta(), pool->x.get(), dx.data);
    });
    if (cuda::is_done(status, "cudnnPoolingBackward")) return;
  }
  cuda::average_pool_backward(pool_of("avg_pool2d", dx, dy, {}, g), queue());
}

}  // namespace halfgrad
