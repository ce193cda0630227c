#include "nn/conv.h"

#include "nn/init.h"
#include "nn/repr.h"

namespace halfgrad::nn {

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Pair kernel, const Conv2dOptions& o)
    : options{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups} {
  check(in_channels > 0 && out_channels > 0 && kernel.h > 0 && kernel.w > 0,
        "Conv2d: {} input channels, {} output channels, kernel {}x{}, expected at least 1 each", in_channels,
        out_channels, kernel.h, kernel.w);
  check(o.groups > 0 && in_channels % o.groups == 0 && out_channels % o.groups == 0,
        "Conv2d: {} groups, expected a divisor of both the {} input and the {} output channels", o.groups, in_channels,
        out_channels);
  weight = empty({out_channels, in_channels / o.groups, kernel.h, kernel.w});
  if (o.bias) bias = empty({out_channels});
  init::default_(weight, bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options); }

void Conv2d::visit(Visitor& v) {
  v.parameter("weight", weight);
  v.parameter("bias", bias);
}

std::string Conv2d::extra_repr() const {
  return fmt::format("{}, {}, {}{}{}{}{}{}", weight.size(1) * options.groups, weight.size(0),
                     text_of(Pair(weight.size(2), weight.size(3))), unless("stride", options.stride, 1),
                     unless("padding", options.padding, 0), unless("dilation", options.dilation, 1),
                     options.groups == 1 ? "" : fmt::format(", groups={}", options.groups),
                     bias.defined() ? "" : ", bias=false");
}

}  // namespace halfgrad::nn
