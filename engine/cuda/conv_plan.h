#pragma once
// How cuDNN does a convolution: the order of memory, the algorithm, its descriptors and its working memory.

#include <cudnn.h>

#include <array>
#include <compare>

#include "engine/backend.h"
#include "engine/cuda/libraries.h"

namespace halfgrad::cuda {

/// How the numbers of [N, C, H, W] lie in memory. Filters [O, C, R, S] lie like the images.
enum class Layout {
  channels_last,  ///< the channels of a pixel are neighbours: cuDNN's NHWC
  planes          ///< row-major: NCHW
};
/// Dense strides in this order.
Strides strides_in(Layout layout, const Shape& shape);
/// Whether v is dense and lies so. The stride of a dimension of size 1 does not matter.
bool lies_in(Layout layout, const View& v);

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvDescriptor = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

cudnnDataType_t type_of(DType dtype);
/// Throws Error naming `op` when the shape is too large for cuDNN, which counts in 32 bits.
TensorDescriptor describe(const char* op, DType dtype, const Shape& shape, Layout layout);
/// False when cuDNN cannot do what it was asked for, and something else must be tried. Throws Error, which names the call,
/// when it failed.
bool is_done(cudnnStatus_t status, const char* call);

enum class ConvPass { forward, backward_input, backward_weight };

/// What decides how a convolution is done.
struct ConvForm {
  ConvPass pass = ConvPass::forward;
  DType dtype = f32;
  std::array<std::int64_t, 4> x = {}, w = {}, y = {};
  std::array<std::int64_t, 7> geometry = {};  // stride, padding, dilation, groups

  ConvForm(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& geometry);
  auto operator<=>(const ConvForm&) const = default;
};

struct ConvPlan {
  int number = 0;  ///< among all plans for the form
  Layout layout = Layout::channels_last;
  TensorDescriptor x, y, bias;  // bias [1, O, 1, 1]
  FilterDescriptor w;
  ConvDescriptor convolution;
  int algorithm = 0;          ///< a cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t or ...BwdFilterAlgo_t
  std::size_t workspace = 0;  ///< bytes
  bool fuses_bias = false;    ///< cudnnConvolutionBiasActivationForward may do it
};

/// A plan without an algorithm: how cuDNN sees the convolution, if its tensors lie so.
ConvPlan describe(const ConvForm& form, Layout layout);
/// The first of the plans from number `first` on that cuDNN says it can do. Throws Error when there is none.
ConvPlan make_plan(cudnnHandle_t handle, const ConvForm& form, int first);

}  // namespace halfgrad::cuda
