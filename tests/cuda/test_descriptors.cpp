// cuDNN's descriptors work without a GPU: the real library must see the tensors and convolutions that halfgrad means.

#include <doctest/doctest.h>

#include "engine/cuda/conv_plan.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::cuda;

namespace {

View view_of(const Shape& shape, DType dtype) { return {nullptr, dtype, shape, contiguous_strides(shape)}; }

}  // namespace

TEST_CASE("cuDNN's dense tensors have the strides that we expect") {
  for (Layout layout : {Layout::channels_last, Layout::planes})
    for (DType dtype : {f16, f32, f64})
      for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 7, 1, 1}, Shape{3, 1, 2, 2}}) {
        const TensorDescriptor tensor = describe("test", dtype, shape, layout);
        cudnnDataType_t type;
        int n, c, h, w, strides[4];
        HALFGRAD_CUDNN(cudnnGetTensor4dDescriptor(tensor.get(), &type, &n, &c, &h, &w, &strides[0], &strides[1],
                                                  &strides[2], &strides[3]));
        CHECK(type == type_of(dtype));
        CHECK(Shape{n, c, h, w} == shape);
        View v = view_of(shape, dtype);
        v.strides = {strides[0], strides[1], strides[2], strides[3]};
        CHECK(lies_in(layout, v));
        CHECK(v.strides == strides_in(layout, shape));
      }
}

TEST_CASE("cuDNN makes of x and w what the op says: rows before columns, groups, dilation") {
  struct Case {
    Shape x, w, y;
    Conv2dGeometry geometry;
  };
  const std::vector<Case> cases = {
      {{2, 4, 9, 8}, {6, 4, 3, 2}, {2, 6, 7, 7}, {}},
      {{2, 4, 9, 8}, {6, 4, 3, 2}, {2, 6, 4, 3}, {.stride = {2, 3}}},
      {{2, 4, 9, 8}, {6, 4, 3, 2}, {2, 6, 11, 9}, {.padding = {2, 1}}},
      {{2, 4, 9, 8}, {6, 4, 3, 2}, {2, 6, 5, 5}, {.dilation = {2, 3}}},
      {{2, 4, 9, 8},
       {6, 2, 3, 2},
       {2, 6, 6, 8},
       {.stride = {2, 1}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2}},
      {{1, 3, 5, 5}, {3, 1, 3, 3}, {1, 3, 5, 5}, {.padding = {1, 1}, .groups = 3}},
      {{1, 1, 2, 2}, {1, 1, 5, 5}, {1, 1, 2, 2}, {.padding = {2, 2}}},
  };
  for (const Case& c : cases)
    for (Layout layout : {Layout::channels_last, Layout::planes})
      for (DType dtype : {f16, f32}) {
        const ConvForm form(ConvPass::forward, view_of(c.x, dtype), view_of(c.w, dtype), view_of(c.y, dtype),
                            c.geometry);
        const ConvPlan plan = describe(form, layout);
        int n = 0, k = 0, h = 0, w = 0;
        HALFGRAD_CUDNN(
            cudnnGetConvolution2dForwardOutputDim(plan.convolution.get(), plan.x.get(), plan.w.get(), &n, &k, &h, &w));
        CHECK(Shape{n, k, h, w} == c.y);
        cudnnMathType_t math;
        HALFGRAD_CUDNN(cudnnGetConvolutionMathType(plan.convolution.get(), &math));
        CHECK(math == (dtype == f16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
      }
}

TEST_CASE("a tensor that cuDNN cannot count is an Error") {
  CHECK_THROWS_WITH_AS(
      describe("conv2d", f16, {1 << 16, 1, 1 << 8, 1 << 8}, Layout::channels_last),
      "conv2d: a tensor of shape [65536, 1, 256, 256] has 4294967296 elements, on a GPU expected at most "
      "2147483647: use a smaller batch",
      Error);
}

TEST_CASE("without a GPU cuDNN says so") {
  cudnnHandle_t handle = nullptr;
  if (cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS) return (void)cudnnDestroy(handle);
  CHECK_THROWS_WITH_AS(HALFGRAD_CUDNN(cudnnCreate(&handle)), doctest::Contains("cuda: cudnnCreate(&handle) failed: "),
                       Error);
}
