// cuDNN: its descriptors and convolutions. cudnn_norm_pool.cpp has the rest.
//
// What the real one leaves to algorithms is refused here where halfgrad must have an answer: f64 lies in planes,
// IMPLICIT_PRECOMP_GEMM knows no dilation, a bias is not fused with groups, and the gradient of filters in groups turns out to
// want planes only when it is run.

#include <cudnn.h>

#include <vector>

#include "dnn_descriptors.h"

namespace cuda_emulation {

Existing<cudnnContext>& dnn_handles() {
  static auto* const all = new Existing<cudnnContext>("a cuDNN handle");
  return *all;
}

namespace {

template <class T>
Existing<T>& existing(const char* what) {
  static auto* const all = new Existing<T>(what);
  return *all;
}
Existing<cudnnFilterStruct>& filters() { return existing<cudnnFilterStruct>("a cuDNN filter descriptor"); }
Existing<cudnnConvolutionStruct>& convolutions() {
  return existing<cudnnConvolutionStruct>("a cuDNN convolution descriptor");
}
Existing<cudnnActivationStruct>& activations() {
  return existing<cudnnActivationStruct>("a cuDNN activation descriptor");
}

// Dense strides; false when a size is not positive.
bool set(Tensor4& t, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
  if (n <= 0 || c <= 0 || h <= 0 || w <= 0 || (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC))
    return false;
  const std::int64_t C = c, H = h, W = w;
  t.type = type;
  t.is_nhwc = format == CUDNN_TENSOR_NHWC;
  t.size = {n, c, h, w};
  t.stride = t.is_nhwc ? std::array<std::int64_t, 4>{H * W * C, 1, W * C, C}
                       : std::array<std::int64_t, 4>{C * H * W, H * W, W, 1};
  return true;
}

struct Convolution {
  Tensor4 x, w, y;
  cudnnConvolutionStruct how;

  bool is_consistent() const {
    for (std::size_t d : {std::size_t{0}, std::size_t{1}}) {
      const int extent = (w.size[2 + d] - 1) * how.dilation[d] + 1;
      if ((x.size[2 + d] + 2 * how.padding[d] - extent) / how.stride[d] + 1 != y.size[2 + d]) return false;
    }
    return x.size[1] == w.size[1] * how.groups && y.size[1] == w.size[0] && w.size[0] % how.groups == 0 &&
           x.size[0] == y.size[0] && x.type == w.type && x.type == y.type;
  }
  bool is_supported() const {
    const bool wide = x.type == CUDNN_DATA_DOUBLE;
    return x.is_nhwc == w.is_nhwc && x.is_nhwc == y.is_nhwc && !(wide && x.is_nhwc) &&
           how.compute == (wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  }
  /// f(element of y, element of w, element of x) for every product.
  template <class F>
  void for_each_product(F&& f) const {
    const int inputs = w.size[1], outputs = w.size[0] / how.groups;
    for_each_index(y.size, [&](int n, int k, int i, int j) {
      for (int c = 0; c < inputs; ++c)
        for (int r = 0; r < w.size[2]; ++r)
          for (int s = 0; s < w.size[3]; ++s) {
            const int h = i * how.stride[0] - how.padding[0] + r * how.dilation[0];
            const int v = j * how.stride[1] - how.padding[1] + s * how.dilation[1];
            if (h < 0 || v < 0 || h >= x.size[2] || v >= x.size[3]) continue;
            f(y.at(n, k, i, j), w.at(k, c, r, s), x.at(n, k / outputs * inputs + c, h, v));
          }
    });
  }
};

enum class Pass { forward, data, filter };

constexpr std::size_t kWorkspace = 1024;

std::size_t workspace_for(Pass pass, int algorithm) {
  return pass == Pass::forward && algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ? 0 : kWorkspace;
}

cudnnStatus_t check(Pass pass, const Convolution& c, int algorithm) {
  if (!c.is_consistent()) return CUDNN_STATUS_BAD_PARAM;
  const bool dilated = c.how.dilation[0] != 1 || c.how.dilation[1] != 1;
  const bool known = pass == Pass::forward
                         ? algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
                               (algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM && !dilated)
                     : pass == Pass::data ? algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
                                          : algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  return known && c.is_supported() ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t ask_for_workspace(Pass pass, const Convolution& c, int algorithm, std::size_t* bytes) {
  const cudnnStatus_t status = check(pass, c, algorithm);
  if (status == CUDNN_STATUS_SUCCESS) *bytes = workspace_for(pass, algorithm);
  return status;
}

struct Operands {
  const void *x, *w, *y, *bias;
  bool relu = false, relu_passes_nan = false;
};

// result = alpha activation(convolution + bias) + beta result
cudnnStatus_t convolve(const char* call, cudnnHandle_t handle, Pass pass, const Convolution& c, const Operands& o,
                       int algorithm, void* workspace, std::size_t bytes, const Blend& blend) {
  cudaStream_t const stream = dnn_handles().checked(handle).stream;
  if (const cudnnStatus_t status = check(pass, c, algorithm); status != CUDNN_STATUS_SUCCESS) return status;
  if (pass == Pass::filter && c.how.groups > 1 && c.x.is_nhwc) return CUDNN_STATUS_NOT_SUPPORTED;
  if (bytes < workspace_for(pass, algorithm) || (bytes > 0 && !workspace)) return CUDNN_STATUS_BAD_PARAM;
  check_operand(call, "x", o.x, c.x.number(), c.x.count());
  check_operand(call, "w", o.w, c.w.number(), c.w.count());
  check_operand(call, "y", o.y, c.y.number(), c.y.count());
  if (o.bias) check_operand(call, "the bias", o.bias, c.y.number(), c.y.size[1]);
  if (bytes > 0)
    check_operand(call, "the working memory", workspace, Number::half, static_cast<std::int64_t>(bytes / 2));
  const Tensor4 result = pass == Pass::forward ? c.y : pass == Pass::data ? c.x : c.w;
  void* const to = const_cast<void*>(pass == Pass::forward ? o.y : pass == Pass::data ? o.x : o.w);
  run_call(call, stream, [=] {
    use_workspace(workspace, bytes);
    in_compute_type(result.number(), [&]<class C>(C) {
      const Number number = result.number();
      std::vector<C> sums(static_cast<std::size_t>(result.count()), C(0));
      c.for_each_product([&](std::int64_t y, std::int64_t w, std::int64_t x) {
        if (pass == Pass::forward)
          sums[static_cast<std::size_t>(y)] += read<C>(number, o.w, w) * read<C>(number, o.x, x);
        else if (pass == Pass::data)
          sums[static_cast<std::size_t>(x)] += read<C>(number, o.w, w) * read<C>(number, o.y, y);
        else
          sums[static_cast<std::size_t>(w)] += read<C>(number, o.x, x) * read<C>(number, o.y, y);
      });
      for_each_index(result.size, [&](int n, int k, int i, int j) {
        const std::int64_t at = result.at(n, k, i, j);
        C sum = sums[static_cast<std::size_t>(at)];
        if (o.bias) sum += read<C>(number, o.bias, k);
        if (o.relu && (sum < 0 || (sum != sum && !o.relu_passes_nan))) sum = 0;
        blend(number, to, at, sum);
      });
    });
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

Existing<cudnnTensorStruct>& tensors() {
  static auto* const all = new Existing<cudnnTensorStruct>("a cuDNN tensor descriptor");
  return *all;
}

namespace {

// What a call is about.
Convolution convolution_of(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t how,
                           cudnnTensorDescriptor_t y) {
  return {tensors().checked(x), filters().checked(w), tensors().checked(y), convolutions().checked(how)};
}

}  // namespace

}  // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const std::lock_guard lock(everything());
  *handle = dnn_handles().add(new cudnnContext);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const std::lock_guard lock(everything());
  dnn_handles().remove(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const std::lock_guard lock(everything());
  dnn_handles().checked(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_BAD_PARAM     ? "CUDNN_STATUS_BAD_PARAM"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "another CUDNN_STATUS";
}
void cudnnGetLastErrorString(char* message, std::size_t bytes) {
  if (bytes > 0) message[0] = 0;
}

// --- descriptors -----------------------------------------------------------------------------------------------------

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  const std::lock_guard lock(everything());
  *tensor = tensors().add(new cudnnTensorStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  const std::lock_guard lock(everything());
  tensors().remove(tensor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  const std::lock_guard lock(everything());
  return set(tensors().checked(tensor), format, type, n, c, h, w) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  const std::lock_guard lock(everything());
  *filter = filters().add(new cudnnFilterStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  const std::lock_guard lock(everything());
  filters().remove(filter);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  const std::lock_guard lock(everything());
  return set(filters().checked(filter), format, type, k, c, h, w) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  const std::lock_guard lock(everything());
  *convolution = convolutions().add(new cudnnConvolutionStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  const std::lock_guard lock(everything());
  convolutions().remove(convolution);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  const std::lock_guard lock(everything());
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1 ||
      mode != CUDNN_CROSS_CORRELATION)
    return CUDNN_STATUS_BAD_PARAM;
  cudnnConvolutionStruct& it = convolutions().checked(convolution);
  it.padding = {pad_h, pad_w};
  it.stride = {stride_h, stride_w};
  it.dilation = {dilation_h, dilation_w};
  it.compute = compute;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  const std::lock_guard lock(everything());
  convolutions().checked(convolution).groups = groups;
  return groups >= 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t) {
  const std::lock_guard lock(everything());
  convolutions().checked(convolution);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  const std::lock_guard lock(everything());
  *activation = activations().add(new cudnnActivationStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double) {
  const std::lock_guard lock(everything());
  cudnnActivationStruct& its = activations().checked(activation);
  its.mode = mode;
  its.nan = nan;
  return CUDNN_STATUS_SUCCESS;
}

// --- convolutions ----------------------------------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t how,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
  const std::lock_guard lock(everything());
  dnn_handles().checked(handle);
  return ask_for_workspace(Pass::forward, convolution_of(x, w, how, y), algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t y,
                                                           const cudnnConvolutionDescriptor_t how,
                                                           const cudnnTensorDescriptor_t x,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                                           std::size_t* bytes) {
  const std::lock_guard lock(everything());
  dnn_handles().checked(handle);
  return ask_for_workspace(Pass::data, convolution_of(x, w, how, y), algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t y,
                                                             const cudnnConvolutionDescriptor_t how,
                                                             const cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                                             std::size_t* bytes) {
  const std::lock_guard lock(everything());
  dnn_handles().checked(handle);
  return ask_for_workspace(Pass::filter, convolution_of(x, w, how, y), algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_its,
                                      const void* x, const cudnnFilterDescriptor_t w_its, const void* w,
                                      const cudnnConvolutionDescriptor_t how, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, std::size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_its, void* y) {
  const std::lock_guard lock(everything());
  const Convolution c = convolution_of(x_its, w_its, how, y_its);
  return convolve("cudnnConvolutionForward", handle, Pass::forward, c, {x, w, y, nullptr}, algorithm, workspace, bytes,
                  Blend(c.y.number(), alpha, beta));
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, const cudnnTensorDescriptor_t x_its, const void* x,
    const cudnnFilterDescriptor_t w_its, const void* w, const cudnnConvolutionDescriptor_t how,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes, const void* alpha2,
    const cudnnTensorDescriptor_t, const void*, const cudnnTensorDescriptor_t bias_its, const void* bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_its, void* y) {
  const std::lock_guard lock(everything());
  const Convolution c = convolution_of(x_its, w_its, how, y_its);
  const Tensor4& its = tensors().checked(bias_its);
  if (its.size != std::array<int, 4>{1, c.y.size[1], 1, 1} || its.type != c.y.type) return CUDNN_STATUS_BAD_PARAM;
  const cudnnActivationStruct& last = activations().checked(activation);
  const bool relu = last.mode == CUDNN_ACTIVATION_RELU;
  if ((!relu && last.mode != CUDNN_ACTIVATION_IDENTITY) || c.how.groups > 1 ||
      algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return convolve("cudnnConvolutionBiasActivationForward", handle, Pass::forward, c,
                  {x, w, y, bias, relu, last.nan == CUDNN_PROPAGATE_NAN}, algorithm, workspace, bytes,
                  Blend(c.y.number(), alpha1, alpha2));
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, const cudnnFilterDescriptor_t w_its,
                                           const void* w, const cudnnTensorDescriptor_t y_its, const void* y,
                                           const cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, std::size_t bytes,
                                           const void* beta, const cudnnTensorDescriptor_t x_its, void* x) {
  const std::lock_guard lock(everything());
  const Convolution c = convolution_of(x_its, w_its, how, y_its);
  return convolve("cudnnConvolutionBackwardData", handle, Pass::data, c, {x, w, y, nullptr}, algorithm, workspace,
                  bytes, Blend(c.y.number(), alpha, beta));
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_its, const void* x,
                                             const cudnnTensorDescriptor_t y_its, const void* y,
                                             const cudnnConvolutionDescriptor_t how,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t bytes, const void* beta, const cudnnFilterDescriptor_t w_its,
                                             void* w) {
  const std::lock_guard lock(everything());
  const Convolution c = convolution_of(x_its, w_its, how, y_its);
  return convolve("cudnnConvolutionBackwardFilter", handle, Pass::filter, c, {x, w, y, nullptr}, algorithm, workspace,
                  bytes, Blend(c.y.number(), alpha, beta));
}

}  // extern "C"
