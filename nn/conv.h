#pragma once

#include "engine/ops/conv.h"
#include "nn/module.h"

namespace halfgrad::nn {

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in_channels, H, W] -> [N, out_channels, OH, OW], see conv2d().
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel, const Conv2dOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward_activated(x, Activation::none); }
  void visit(Visitor& v) override;
  std::string extra_repr() const override;

  halfgrad::Conv2dOptions options;
  Tensor weight;  ///< [out_channels, in_channels / groups, kernel.h, kernel.w]
  Tensor bias;    ///< [out_channels], or undefined

 protected:
  bool applies(Activation) const override;
  Tensor forward_activated(const Tensor& x, Activation activation) override;
};

struct ConvTranspose2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair output_padding = 0;
  Pair dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in_channels, H, W] -> [N, out_channels, OH, OW], see conv_transpose2d().
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel,
                  const ConvTranspose2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string extra_repr() const override;

  halfgrad::ConvTranspose2dOptions options;
  Tensor weight;  ///< [in_channels, out_channels / groups, kernel.h, kernel.w]
  Tensor bias;    ///< [out_channels], or undefined
};

}  // namespace halfgrad::nn
