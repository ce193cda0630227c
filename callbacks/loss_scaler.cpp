#include "callbacks/loss_scaler.h"

#include <algorithm>

namespace halfgrad {

void LossScaler::step_taken() {
  at_floor = 0;
  if (!dynamic || ++noskip < max_noskip) return;
  noskip = 0;
  scale = std::min(2 * scale, max_scale);
}

void LossScaler::step_skipped() {
  ++skipped;
  noskip = 0;
  if (dynamic && scale > min_scale) {
    at_floor = 0;
    scale = std::max(scale / 2, min_scale);
  } else {
    ++at_floor;
  }
}

}  // namespace halfgrad
