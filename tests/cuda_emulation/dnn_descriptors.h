#pragma once
// What is behind cuDNN's handles and descriptors.

#include <cudnn.h>

#include <array>

#include "library.h"

namespace cuda_emulation {

/// A tensor or a filter of four dimensions.
struct Tensor4 {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_nhwc = false;
  std::array<int, 4> size = {};
  std::array<std::int64_t, 4> stride = {};

  Number number() const {
    return type == CUDNN_DATA_HALF ? Number::half : type == CUDNN_DATA_FLOAT ? Number::single : Number::twice;
  }
  std::int64_t count() const { return std::int64_t{size[0]} * size[1] * size[2] * size[3]; }
  std::int64_t at(int n, int c, int h, int w) const {
    return n * stride[0] + c * stride[1] + h * stride[2] + w * stride[3];
  }
};

template <class F>
void for_each_index(const std::array<int, 4>& size, F&& f) {
  for (int n = 0; n < size[0]; ++n)
    for (int c = 0; c < size[1]; ++c)
      for (int h = 0; h < size[2]; ++h)
        for (int w = 0; w < size[3]; ++w) f(n, c, h, w);
}

}  // namespace cuda_emulation

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct : cuda_emulation::Tensor4 {};
struct cudnnFilterStruct : cuda_emulation::Tensor4 {};
struct cudnnConvolutionStruct {
  std::array<int, 2> padding = {0, 0}, stride = {1, 1}, dilation = {1, 1};
  int groups = 1;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_SIGMOID;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
};
struct cudnnPoolingStruct {
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  std::array<int, 2> window = {1, 1}, padding = {0, 0}, stride = {1, 1};
};

namespace cuda_emulation {

Existing<cudnnContext>& dnn_handles();
Existing<cudnnTensorStruct>& tensors();

}  // namespace cuda_emulation
