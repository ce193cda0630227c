// Convolutions on the GPU, by cuDNN. Tensors that lie in the order which the plan asks for are used where they are, the
// others are copied. f16 is multiplied by tensor cores and added in f32.
//
// A bias must be added before the result is rounded. The forward pass has a call for that. Otherwise the result is filled
// with the bias first, of which it holds every bit, and cuDNN adds the convolution to it: y = alpha conv(x) + beta y. Its guide
// does not say where that sum is rounded; should the convolution be rounded before, an f16 result is off by 2^-11 |conv(x)|
// more than by its own rounding.

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/dnn.h"
#include "engine/error.h"

namespace halfgrad {

namespace {

using cuda::ConvForm;
using cuda::ConvPass;
using cuda::ConvPlan;
using cuda::Factors;
using cuda::Temporary;

struct Operands {
  View x, w, y;
};

// The bias [C], or 0, for every element of a result [N, C, H, W].
View everywhere(const View& bias, const Shape& shape) {
  static constexpr float kZero = 0;
  if (!bias) return {const_cast<float*>(&kZero), f32, shape, Strides(4, 0), Device::cpu()};
  return {bias.data, bias.dtype, shape, {0, bias.strides[0], 0, 0}, bias.device};
}

// result = convolution, or result += convolution; false when cuDNN cannot.
bool run(cudnnHandle_t handle, ConvPass pass, const ConvPlan& plan, const Operands& o, void* workspace,
         const Factors& factors) {
  switch (pass) {
    case ConvPass::forward:
      return cuda::is_done(
          cudnnConvolutionForward(handle, factors.alpha(), plan.x.get(), o.x.data, plan.w.get(), o.w.data,
                                  plan.convolution.get(), static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm),
                                  workspace, plan.workspace, factors.beta(), plan.y.get(), o.y.data),
          "cudnnConvolutionForward");
    case ConvPass::backward_input:
      return cuda::is_done(cudnnConvolutionBackwardData(
                               handle, factors.alpha(), plan.w.get(), o.w.data, plan.y.get(), o.y.data,
                               plan.convolution.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm),
                               workspace, plan.workspace, factors.beta(), plan.x.get(), o.x.data),
                           "cudnnConvolutionBackwardData");
    default:
      return cuda::is_done(cudnnConvolutionBackwardFilter(
                               handle, factors.alpha(), plan.x.get(), o.x.data, plan.y.get(), o.y.data,
                               plan.convolution.get(), static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm),
                               workspace, plan.workspace, factors.beta(), plan.w.get(), o.w.data),
                           "cudnnConvolutionBackwardFilter");
  }
}

cudnnActivationDescriptor_t make_activation(cudnnActivationMode_t mode) {
  cudnnActivationDescriptor_t activation = nullptr;
  HALFGRAD_CUDNN(cudnnCreateActivationDescriptor(&activation));
  HALFGRAD_CUDNN(cudnnSetActivationDescriptor(activation, mode, CUDNN_PROPAGATE_NAN, 0));
  return activation;
}

// y = activation(convolution + bias) in one call; false when cuDNN cannot.
bool run_and_finish(cudnnHandle_t handle, ConvPlan& plan, const Operands& o, const void* bias, Activation activation,
                    void* workspace) {
  static const auto kIdentity = make_activation(CUDNN_ACTIVATION_IDENTITY);
  static const auto kRelu = make_activation(CUDNN_ACTIVATION_RELU);
  const Factors factors(f32);
  const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
      handle, factors.alpha(), plan.x.get(), o.x.data, plan.w.get(), o.w.data, plan.convolution.get(),
      static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm), workspace, plan.workspace, factors.beta(), plan.y.get(),
      o.y.data, plan.bias.get(), bias, activation == Activation::relu ? kRelu : kIdentity, plan.y.get(), o.y.data);
  plan.fuses_bias = cuda::is_done(status, "cudnnConvolutionBiasActivationForward");
  return plan.fuses_bias;
}

// The convolution as a plan says; false when cuDNN cannot do it so.
bool convolve(CudaBackend& backend, cuda::Dnn& dnn, ConvPass pass, ConvPlan& plan, const View& x, const View& w,
              const View& y, const View& bias, Activation activation) {
  const View& wanted = pass == ConvPass::forward ? y : pass == ConvPass::backward_input ? x : w;
  std::optional<Temporary> memory[3], bias_memory;
  const auto place = [&](const View& v, std::optional<Temporary>& its) {
    return (&v == &wanted ? cuda::room_for : cuda::in_layout)(backend, v, plan.layout, its);
  };
  const Operands o{place(x, memory[0]), place(w, memory[1]), place(y, memory[2])};
  const View& result = pass == ConvPass::forward ? o.y : pass == ConvPass::backward_input ? o.x : o.w;
  const Temporary workspace(backend, u8, {static_cast<std::int64_t>(plan.workspace)}, {1});

  bool done = false;
  if (bias && pass == ConvPass::forward) {
    const View row{bias.data, bias.dtype, {1, bias.shape[0], 1, 1}, {0, bias.strides[0], 0, 0}, bias.device};
    const void* const dense = cuda::in_layout(backend, row, plan.layout, bias_memory).data;
    done = dnn.with_handle([&](cudnnHandle_t handle) {
      return plan.fuses_bias && run_and_finish(handle, plan, o, dense, activation, workspace.view.data);
    });
  }
  if (!done) {
    if (bias) backend.copy(result, everywhere(bias, result.shape));
    done = dnn.with_handle([&](cudnnHandle_t handle) {
      return run(handle, pass, plan, o, workspace.view.data, Factors(wanted.dtype, static_cast<bool>(bias)));
    });
    if (done) backend.activate(result, activation);
  }
  if (done && result.data != wanted.data) backend.copy(wanted, result);
  return done;
}

}  // namespace

void CudaBackend::convolve(ConvPass pass, const View& x, const View& w, const View& y, const View& bias,
                           const Conv2dGeometry& geometry, Activation activation) {
  const View& wanted = pass == ConvPass::forward ? y : pass == ConvPass::backward_input ? x : w;
  if (wanted.numel() == 0) return;
  if (x.numel() == 0 || w.numel() == 0 || y.numel() == 0) {
    copy(wanted, everywhere(bias, wanted.shape));
    return activate(wanted, activation);
  }
  queue();
  const ConvForm form(pass, x, w, y, geometry);
  for (;;) {
    const std::shared_ptr<ConvPlan> plan = dnn().plan(form);
    if (halfgrad::convolve(*this, dnn(), pass, *plan, x, w, y, bias, activation)) return;
    dnn().replace(form, plan);
  }
}

void CudaBackend::conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry& geometry,
                         Activation activation) {
  convolve(ConvPass::forward, x, w, y, bias, geometry, activation);
}

void CudaBackend::conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias,
                                        const Conv2dGeometry& geometry) {
  convolve(ConvPass::backward_input, dx, w, dy, bias, geometry, Activation::none);
}

void CudaBackend::conv2d_backward_weight(const View& dw, const View& x, const View& dy,
                                         const Conv2dGeometry& geometry) {
  convolve(ConvPass::backward_weight, x, dw, dy, {}, geometry, Activation::none);
}

}  // namespace halfgrad
