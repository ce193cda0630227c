#pragma once
// What the host says to the kernels of batch normalisation.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/cuda/space.h"
#include "engine/dtype.h"

namespace halfgrad::cuda {

/// [N, C, S], cut into pieces for the blocks: some channels, and a chunk of their N*S positions. The cuts depend on the shape
/// alone, so sums have the same bits on every GPU.
struct Channels {
  std::uint32_t channels = 0;
  std::uint32_t positions = 0;  // N*S
  Divisor inner;                // S
  std::uint32_t width = 1;      // channels in a piece, a power of two up to 32: neighbours in memory are read together
  std::uint32_t chunk = 0;      // positions in a piece
  std::uint32_t chunks = 0;
};

/// A tensor [N, C, S] with its strides. All that a kernel walks through have one dtype.
struct ChannelTensor {
  void* data = nullptr;
  std::int64_t image = 0, channel = 0, position = 0;
};

/// A number for each channel, of any float dtype; `absent` when there is none.
struct ChannelNumbers {
  void* data = nullptr;
  DType dtype = f32;
  std::int64_t stride = 0;
  double absent = 0;
};

/// How many bytes of working memory the sums over the positions need.
std::size_t bytes_for_sums(const Channels& space);

// x is f16, f32 or f64; `memory` holds bytes_for_sums(space).
void channel_moments(const Channels& space, DType dtype, const ChannelTensor& x, const ChannelNumbers& mean,
                     const ChannelNumbers& rstd, double eps, void* memory, const Queue& queue);
/// y = (x - mean) * rstd * weight + bias, or `lowest` if that is more
void normalize_channels(const Channels& space, DType dtype, const ChannelTensor& y, const ChannelTensor& x,
                        const ChannelNumbers& mean, const ChannelNumbers& rstd, const ChannelNumbers& weight,
                        const ChannelNumbers& bias, float lowest, const Queue& queue);

/// dz = dy where (x - mean) * rstd * weight + bias, rounded to its dtype, is positive, else 0.
void relu_gradient(const Channels& space, DType dtype, const ChannelTensor& dz, const ChannelTensor& dy,
                   const ChannelTensor& x, const ChannelNumbers& mean, const ChannelNumbers& rstd,
                   const ChannelNumbers& weight, const ChannelNumbers& bias, const Queue& queue);

struct BatchNormBackward {
  ChannelTensor dx, dy, x;
  ChannelNumbers dweight, dbias, mean, rstd, weight;  // dweight and dbias may have no data
  bool training = true;
};
void batch_norm_backward(const Channels& space, DType dtype, const BatchNormBackward& work, void* memory,
                         const Queue& queue);

}  // namespace halfgrad::cuda
