#pragma once
// GradScaler: a loss scale that lives where the gradients are.

#include "engine/step_control.h"
#include "engine/tensor.h"

namespace halfgrad::optim {

/// A LossScaler (engine/step_control.h) in the memory of a device, where Optimizer::step() moves it without the host
/// having to wait. The counterpart of torch.amp.GradScaler:
///
///   loss.backward(scaler.scale(loss));
///   optimizer.step({.scaler = &scaler});
class GradScaler {
 public:
  explicit GradScaler(const LossScaler& initial = {}) : initial_(initial) {}

  /// The present one. On a GPU this waits until all steps that were asked for are done.
  LossScaler state() const;
  void set_state(const LossScaler& state);

  /// The gradient to begin backward with: the scale, in the dtype, shape and device of `loss`, one number.
  Tensor scale(const Tensor& loss);
  /// Its place on the device; it moves there if it is elsewhere.
  LossScaler* on(Device device);
  /// The memory behind it as numbers without a meaning, to be copied; undefined before it is on a device.
  const Tensor& memory() const { return memory_; }

 private:
  LossScaler initial_;  // while it is on no device
  Tensor memory_;
};

}  // namespace halfgrad::optim
