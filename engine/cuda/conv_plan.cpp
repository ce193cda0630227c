// Which of cuDNN's algorithms are right for halfgrad: those that add products in f32 without transforming the numbers first,
// as Winograd's and the FFTs do at the price of some bits, and in the same order every time. Of those cuDNN says which it
// can do for a shape; the first one in the lists below is taken, and the next one if it cannot do it after all.

#include "engine/cuda/conv_plan.h"

#include <algorithm>
#include <span>

#include "engine/error.h"

namespace halfgrad::cuda {

Strides strides_in(Layout layout, const Shape& shape) {
  if (layout == Layout::planes) return contiguous_strides(shape);
  const std::int64_t channels = shape[1], width = shape[3];
  return {shape[2] * width * channels, 1, width * channels, channels};
}

bool lies_in(Layout layout, const View& v) {
  const Strides expected = strides_in(layout, v.shape);
  for (std::size_t d = 0; d < 4; ++d)
    if (v.shape[d] != 1 && v.strides[d] != expected[d]) return false;
  return true;
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == f16 ? CUDNN_DATA_HALF : dtype == f32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_DOUBLE;
}

bool is_done(cudnnStatus_t status, const char* call) {
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check_call(status, call);
  return true;
}

namespace {

cudnnTensorFormat_t format_of(Layout layout) {
  return layout == Layout::planes ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
}

// The sizes of a shape as cuDNN counts.
std::array<int, 4> sizes_of(const char* op, const Shape& shape) {
  check(shape.numel() <= INT32_MAX,
        "{}: a tensor of shape {} has {} elements, on a GPU expected at most {}: use a smaller batch", op, shape,
        shape.numel(), INT32_MAX);
  std::array<int, 4> sizes;
  for (std::size_t d = 0; d < 4; ++d) sizes[d] = static_cast<int>(shape[d]);
  return sizes;
}

constexpr const char* kName[] = {"conv2d", "conv2d_backward_input", "conv2d_backward_weight"};

constexpr int kForward[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM};
constexpr int kBackwardInput[] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1};
constexpr int kBackwardWeight[] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1};

std::span<const int> algorithms_for(ConvPass pass) {
  if (pass == ConvPass::forward) return kForward;
  if (pass == ConvPass::backward_input) return kBackwardInput;
  return kBackwardWeight;
}

// Tensor cores want f16 in channels-last order; halfgrad's convolutions leave their results in it, whatever the dtype. cuDNN
// knows f64 in planes only.
constexpr Layout kLayouts[] = {Layout::channels_last, Layout::planes};
std::span<const Layout> layouts_for(DType dtype) { return std::span(kLayouts).subspan(dtype == f64 ? 1 : 0); }

cudnnMathType_t math_for(DType dtype) {
  if (dtype == f16) return CUDNN_TENSOR_OP_MATH;
  return dtype == f32 && !allows_tf32() ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

Shape shape_of(const std::array<std::int64_t, 4>& sizes) { return Shape(sizes.data(), sizes.size()); }

cudnnStatus_t ask_for_workspace(cudnnHandle_t handle, ConvPass pass, ConvPlan& plan) {
  if (pass == ConvPass::forward)
    return cudnnGetConvolutionForwardWorkspaceSize(handle, plan.x.get(), plan.w.get(), plan.convolution.get(),
                                                   plan.y.get(), static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm),
                                                   &plan.workspace);
  if (pass == ConvPass::backward_input)
    return cudnnGetConvolutionBackwardDataWorkspaceSize(
        handle, plan.w.get(), plan.y.get(), plan.convolution.get(), plan.x.get(),
        static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm), &plan.workspace);
  return cudnnGetConvolutionBackwardFilterWorkspaceSize(
      handle, plan.x.get(), plan.y.get(), plan.convolution.get(), plan.w.get(),
      static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm), &plan.workspace);
}

}  // namespace

TensorDescriptor describe(const char* op, DType dtype, const Shape& shape, Layout layout) {
  cudnnTensorDescriptor_t tensor = nullptr;
  HALFGRAD_CUDNN(cudnnCreateTensorDescriptor(&tensor));
  TensorDescriptor owner(tensor);
  const auto [n, c, h, w] = sizes_of(op, shape);
  HALFGRAD_CUDNN(cudnnSetTensor4dDescriptor(tensor, format_of(layout), type_of(dtype), n, c, h, w));
  return owner;
}

ConvPlan describe(const ConvForm& form, Layout layout) {
  const char* const op = kName[static_cast<int>(form.pass)];
  ConvPlan plan;
  plan.layout = layout;
  plan.x = describe(op, form.dtype, shape_of(form.x), layout);
  plan.y = describe(op, form.dtype, shape_of(form.y), layout);
  plan.bias = describe(op, form.dtype, {1, form.y[1], 1, 1}, layout);

  cudnnFilterDescriptor_t w = nullptr;
  HALFGRAD_CUDNN(cudnnCreateFilterDescriptor(&w));
  plan.w.reset(w);
  const auto [outputs, inputs, rows, columns] = sizes_of(op, shape_of(form.w));
  HALFGRAD_CUDNN(cudnnSetFilter4dDescriptor(w, type_of(form.dtype), format_of(layout), outputs, inputs, rows, columns));

  cudnnConvolutionDescriptor_t convolution = nullptr;
  HALFGRAD_CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
  plan.convolution.reset(convolution);
  std::array<int, 7> g;
  std::transform(form.geometry.begin(), form.geometry.end(), g.begin(),
                 [](std::int64_t i) { return static_cast<int>(i); });
  HALFGRAD_CUDNN(cudnnSetConvolution2dDescriptor(convolution, g[2], g[3], g[0], g[1], g[4], g[5],
                                                 CUDNN_CROSS_CORRELATION,
                                                 form.dtype == f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  HALFGRAD_CUDNN(cudnnSetConvolutionGroupCount(convolution, g[6]));
  HALFGRAD_CUDNN(cudnnSetConvolutionMathType(convolution, math_for(form.dtype)));
  return plan;
}

ConvForm::ConvForm(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& g)
    : pass(pass), dtype(x.dtype), geometry{g.stride[0],   g.stride[1],   g.padding[0], g.padding[1],
                                           g.dilation[0], g.dilation[1], g.groups} {
  std::copy_n(x.shape.data(), 4, this->x.begin());
  std::copy_n(w.shape.data(), 4, this->w.begin());
  std::copy_n(y.shape.data(), 4, this->y.begin());
}

ConvPlan make_plan(cudnnHandle_t handle, const ConvForm& form, int first) {
  int number = 0;
  for (Layout layout : layouts_for(form.dtype))
    for (int algorithm : algorithms_for(form.pass)) {
      if (number++ < first) continue;
      ConvPlan plan = describe(form, layout);
      plan.number = number - 1;
      plan.algorithm = algorithm;
      if (!is_done(ask_for_workspace(handle, form.pass, plan), "cudnnGetConvolution...WorkspaceSize")) continue;
      plan.fuses_bias = form.pass == ConvPass::forward && form.dtype != f64 &&
                        algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
      return plan;
    }
  fail("{}: cuDNN has no suitable algorithm for {} x {}, w {} and y {}; use the device cpu for this convolution",
       kName[static_cast<int>(form.pass)], name_of(form.dtype), shape_of(form.x), shape_of(form.w), shape_of(form.y));
}

}  // namespace halfgrad::cuda
