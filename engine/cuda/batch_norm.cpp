// Batch normalisation on the GPU: by cuDNN where it takes what there is (training, f16 or f32 in dense memory, parameters in
// f32), else by our own kernels (batch_norm.cu).

#include "engine/cuda/batch_norm.h"

#include <algorithm>
#include <bit>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/dnn.h"
#include "engine/error.h"

namespace halfgrad {

namespace {

using cuda::BatchNormBackward;
using cuda::ChannelNumbers;
using cuda::Channels;
using cuda::ChannelTensor;
using cuda::Factors;
using cuda::Layout;
using cuda::Temporary;

// --- our own kernels -------------------------------------------------------------------------------------------------

Channels channels_of(const char* op, const View& x) {
  constexpr std::int64_t kRowsInChunk = 32, kMostChunks = 128;
  const std::int64_t channels = x.shape[1], positions = x.shape[0] * x.shape[2];
  check(positions <= INT32_MAX && channels <= INT32_MAX,
        "{}: an input of shape {} has {} values per channel, on a GPU expected at most {}: use a smaller batch", op,
        x.shape, positions, INT32_MAX);
  Channels space;
  space.channels = static_cast<std::uint32_t>(channels);
  space.positions = static_cast<std::uint32_t>(positions);
  if (positions == 0) return space;
  space.inner = cuda::Divisor(static_cast<std::uint32_t>(x.shape[2]));
  // Neighbouring threads take neighbours in memory, which are channels or positions.
  if (x.strides[1] == 1 && channels > 1)
    space.width =
        static_cast<std::uint32_t>(std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(channels, 32))));
  const std::int64_t rows = 256 / space.width;
  const std::int64_t chunks = std::clamp<std::int64_t>(positions / (rows * kRowsInChunk), 1, kMostChunks);
  space.chunk = static_cast<std::uint32_t>((positions + chunks - 1) / chunks);
  space.chunks = (space.positions + space.chunk - 1) / space.chunk;
  return space;
}

ChannelTensor tensor_of(const View& x) {
  return x ? ChannelTensor{x.data, x.strides[0], x.strides[1], x.strides[2]} : ChannelTensor{};
}
ChannelNumbers numbers_of(const View& x, double absent = 0) {
  return x ? ChannelNumbers{x.data, x.dtype, x.strides[0], absent} : ChannelNumbers{nullptr, f32, 0, absent};
}

// --- cuDNN -----------------------------------------------------------------------------------------------------------

// [N, C, S] as [N, C, S, 1], which cuDNN takes.
View as_images(const View& x) {
  View images = x;
  images.shape.push_back(1);
  images.strides.push_back(1);
  return images;
}

bool is_dense_f32(const View& numbers) {
  return numbers.dtype == f32 && (numbers.shape[0] == 1 || numbers.strides[0] == 1);
}

// The order of memory in which cuDNN can take all of these together.
std::optional<Layout> common_layout(std::initializer_list<const View*> tensors) {
  const View& first = **tensors.begin();
  if (first.dtype == f64 || first.numel() == 0 || first.numel() > INT32_MAX) return std::nullopt;
  for (Layout layout : {Layout::channels_last, Layout::planes})
    if (std::all_of(tensors.begin(), tensors.end(), [&](const View* v) {
          return !*v || (v->dtype == first.dtype && cuda::lies_in(layout, as_images(*v)));
        }))
      return layout;
  return std::nullopt;
}

// The mode for channels-last memory reads it in its order.
cudnnBatchNormMode_t mode_for(Layout layout) {
  return layout == Layout::channels_last ? CUDNN_BATCHNORM_SPATIAL_PERSISTENT : CUDNN_BATCHNORM_SPATIAL;
}

}  // namespace

void CudaBackend::batch_norm(const View& y, const View& mean, const View& rstd, const View& x, const View& weight,
                             const View& bias, double eps, Activation activation) {
  if (x.shape[1] == 0) return;
  const std::optional<Layout> layout = common_layout({&x, &y});
  if (layout && weight && bias && is_dense_f32(weight) && is_dense_f32(bias) && eps >= CUDNN_BN_MIN_EPSILON) {
    const auto tensor = cuda::describe("batch_norm", x.dtype, as_images(x).shape, *layout);
    const auto numbers = cuda::describe("batch_norm", f32, {1, x.shape[1], 1, 1}, *layout);
    const Factors factors(f32);
    queue();
    const cudnnStatus_t status = dnn().with_handle([&](cudnnHandle_t handle) {
      return cudnnBatchNormalizationForwardTraining(
          handle, mode_for(*layout), factors.alpha(), factors.beta(), tensor.get(), x.data, tensor.get(), y.data,
          numbers.get(), weight.data, bias.data, 0, nullptr, nullptr, eps, mean.data, rstd.data);
    });
    if (cuda::is_done(status, "cudnnBatchNormalizationForwardTraining")) return activate(y, activation);
  }
  const Channels space = channels_of("batch_norm", x);
  const Temporary memory(*this, u8, {static_cast<std::int64_t>(cuda::bytes_for_sums(space))}, {1});
  cuda::channel_moments(space, x.dtype, tensor_of(x), numbers_of(mean), numbers_of(rstd), eps, memory.view.data,
                        queue());
  normalize_channels(y, x, mean, rstd, weight, bias, activation);
}

void CudaBackend::normalize_channels(const View& y, const View& x, const View& mean, const View& rstd,
                                     const View& weight, const View& bias, Activation activation) {
  if (x.numel() == 0) return;
  cuda::normalize_channels(channels_of("batch_norm", x), x.dtype, tensor_of(y), tensor_of(x), numbers_of(mean),
                           numbers_of(rstd), numbers_of(weight, 1), numbers_of(bias), lowest_of(activation), queue());
}

void CudaBackend::batch_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy_behind,
                                      const View& x, const View& mean, const View& rstd, const View& weight,
                                      const View& bias, bool training, Activation activation) {
  if (x.shape[1] == 0) return;
  // cuDNN wants the gradient in front of the ReLU.
  std::optional<Temporary> dy_memory;
  View dy = dy_behind;
  if (activation == Activation::relu && x.numel() > 0) {
    dy = dy_memory
             .emplace(*this, x.dtype, x.shape, is_dense(x.shape, x.strides) ? x.strides : contiguous_strides(x.shape))
             .view;
    cuda::relu_gradient(channels_of("batch_norm_backward", x), x.dtype, tensor_of(dy), tensor_of(dy_behind),
                        tensor_of(x), numbers_of(mean), numbers_of(rstd), numbers_of(weight, 1), numbers_of(bias),
                        queue());
  }
  const auto fits = [](const View& result) { return !result || is_dense_f32(result); };
  const std::optional<Layout> layout = common_layout({&x, &dy, &dx});
  if (training && layout && weight && is_dense_f32(weight) && fits(dweight) && fits(dbias)) {
    const auto tensor = cuda::describe("batch_norm_backward", x.dtype, as_images(x).shape, *layout);
    const auto numbers = cuda::describe("batch_norm_backward", f32, {1, x.shape[1], 1, 1}, *layout);
    // cuDNN computes all three, wanted or not.
    std::optional<Temporary> memory[3];
    const auto room = [&](const View& result, const View& like, std::optional<Temporary>& its) {
      return result ? result.data
                    : its.emplace(*this, like.dtype, like.shape, contiguous_strides(like.shape)).view.data;
    };
    void *const to_x = room(dx, x, memory[0]), *const to_weight = room(dweight, weight, memory[1]),
                *const to_bias = room(dbias, weight, memory[2]);
    const Factors factors(f32);
    constexpr double kUnused = 1e-5;  // the statistics are given
    queue();
    const cudnnStatus_t status = dnn().with_handle([&](cudnnHandle_t handle) {
      return cudnnBatchNormalizationBackward(handle, mode_for(*layout), factors.alpha(), factors.beta(),
                                             factors.alpha(), factors.beta(), tensor.get(), x.data, tensor.get(),
                                             dy.data, tensor.get(), to_x, numbers.get(), weight.data, to_weight,
                                             to_bias, kUnused, mean.data, rstd.data);
    });
    if (cuda::is_done(status, "cudnnBatchNormalizationBackward")) return;
  }
  const Channels space = channels_of("batch_norm_backward", x);
  const Temporary memory(*this, u8, {static_cast<std::int64_t>(cuda::bytes_for_sums(space))}, {1});
  const BatchNormBackward work{tensor_of(dx),       tensor_of(dy),         tensor_of(x),
                               numbers_of(dweight), numbers_of(dbias),     numbers_of(mean),
                               numbers_of(rstd),    numbers_of(weight, 1), training};
  cuda::batch_norm_backward(space, x.dtype, work, memory.view.data, queue());
}

}  // namespace halfgrad
