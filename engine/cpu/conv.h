#pragma once
// 2-d convolutions on the CPU: the plans over kernels/conv.h. Arguments as in Backend.

#include "engine/backend.h"

namespace halfgrad::cpu {

void conv2d(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry&,
            Activation activation = Activation::none);
void conv2d_backward_input(const View& dx, const View& dy, const View& w, const View& bias, const Conv2dGeometry&);
void conv2d_backward_weight(const View& dw, const View& x, const View& dy, const Conv2dGeometry&);

/// Whether the input gradient is better computed by the next function, for T = float and the bits of halves,
/// std::uint16_t. `bias` has a float for each channel of dx, or is null.
bool has_few_inputs(const View& dx, const View& dy, const View& w, const Conv2dGeometry&);
template <class T>
void backward_few_inputs(const View& dx, const View& dy, const View& w, const float* bias, const Conv2dGeometry&);

// All three for f64, by unfolding the image into a matrix for Eigen; for checking gradients.
void conv2d_f64(const View& y, const View& x, const View& w, const View& bias, const Conv2dGeometry&,
                Activation activation);
void conv2d_backward_input_f64(const View& dx, const View& dy, const View& w, const View& bias, const Conv2dGeometry&);
void conv2d_backward_weight_f64(const View& dw, const View& x, const View& dy, const Conv2dGeometry&);

}  // namespace halfgrad::cpu
