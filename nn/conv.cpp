#include "nn/conv.h"

#include "nn/init.h"
#include "nn/repr.h"

namespace halfgrad::nn {
namespace {

void check_sizes(const char* layer, std::int64_t in_channels, std::int64_t out_channels, Pair kernel,
                 std::int64_t groups) {
  check(in_channels > 0 && out_channels > 0 && kernel.h > 0 && kernel.w > 0,
        "{}: {} input channels, {} output channels, kernel {}x{}, expected at least 1 each", layer, in_channels,
        out_channels, kernel.h, kernel.w);
  check(groups > 0 && in_channels % groups == 0 && out_channels % groups == 0,
        "{}: {} groups, expected a divisor of both the {} input and the {} output channels", layer, groups, in_channels,
        out_channels);
}

template <class Layer>
std::string repr(const Layer& layer, std::int64_t in_channels, std::int64_t out_channels, Pair output_padding = 0) {
  const auto& options = layer.options;
  return fmt::format("{}, {}, {}{}{}{}{}{}{}", in_channels, out_channels,
                     text_of(Pair(layer.weight.size(2), layer.weight.size(3))), unless("stride", options.stride, 1),
                     unless("padding", options.padding, 0), unless("dilation", options.dilation, 1),
                     unless("output_padding", output_padding, 0),
                     options.groups == 1 ? "" : fmt::format(", groups={}", options.groups),
                     layer.bias.defined() ? "" : ", bias=false");
}

}  // namespace

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel, const Conv2dOptions& o)
    : options{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups} {
  check_sizes("Conv2d", in_channels, out_channels, kernel, o.groups);
  weight = empty({out_channels, in_channels / o.groups, kernel.h, kernel.w});
  if (o.bias) bias = empty({out_channels});
  init::default_(weight, bias);
}

bool Conv2d::applies(Activation) const { return is_exactly<Conv2d>(*this); }

Tensor Conv2d::forward_activated(const Tensor& x, Activation activation) {
  return conv2d(x, weight, bias, options, activation);
}

void Conv2d::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
}

std::string Conv2d::extra_repr() const { return repr(*this, weight.size(1) * options.groups, weight.size(0)); }

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel,
                                 const ConvTranspose2dOptions& o)
    : options{.stride = o.stride,
              .padding = o.padding,
              .output_padding = o.output_padding,
              .dilation = o.dilation,
              .groups = o.groups} {
  check_sizes("ConvTranspose2d", in_channels, out_channels, kernel, o.groups);
  weight = empty({in_channels, out_channels / o.groups, kernel.h, kernel.w});
  if (o.bias) bias = empty({out_channels});
  init::default_(weight, bias);  // as in PyTorch, with fan_in = weight.size(1) * kernel: here, of the outputs
}

Tensor ConvTranspose2d::forward(const Tensor& x) { return conv_transpose2d(x, weight, bias, options); }

void ConvTranspose2d::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
}

std::string ConvTranspose2d::extra_repr() const {
  return repr(*this, weight.size(0), weight.size(1) * options.groups, options.output_padding);
}

}  // namespace halfgrad::nn
