#include "optim/grad_scaler.h"

#include <cstddef>
#include <cstring>

#include "engine/backend.h"
#include "engine/ops/elementwise.h"

namespace halfgrad::optim {

// f64 numbers, the first of which is the scale: it can be used in computations.
static_assert(offsetof(LossScaler, scale) == 0 && sizeof(LossScaler) % sizeof(double) == 0);

LossScaler GradScaler::state() const {
  if (!memory_.defined()) return initial_;
  LossScaler state;
  backend_for(memory_.device()).copy_to_host(&state, memory_.raw_data(), sizeof(state));
  return state;
}

void GradScaler::set_state(const LossScaler& state) {
  initial_ = state;
  if (memory_.defined()) backend_for(memory_.device()).copy_from_host(memory_.raw_data(), &state, sizeof(state));
}

LossScaler* GradScaler::on(Device device) {
  if (!memory_.defined() || memory_.device() != device) {
    const LossScaler present = state();
    memory_ = empty({sizeof(LossScaler) / sizeof(double)}, f64, device);
    set_state(present);
  }
  return static_cast<LossScaler*>(memory_.raw_data());
}

Tensor GradScaler::scale(const Tensor& loss) {
  const NoGrad guard;
  on(loss.device());
  return cast(memory_.narrow(0, 0, 1), loss.dtype()).view(loss.shape());
}

}  // namespace halfgrad::optim
