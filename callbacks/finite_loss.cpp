#include "callbacks/finite_loss.h"

#include <cmath>

#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace halfgrad {

bool all_finite(const Tensor& x) {
  NoGrad guard;
  return !is_floating(x.dtype()) || all(isfinite(x)).item<bool>();
}

void FiniteLoss::on_backward_begin(Learner& learn) {
  failed_ = !learn.mixed_precision() && !std::isfinite(learn.state.last_loss.item());
  if (failed_) learn.state.skip_bwd = learn.state.skip_step = true;
}

void FiniteLoss::on_batch_end(Learner& learn) {
  const TrainingState& s = learn.state;
  if (!s.train || !failed_) return;
  failed_ = false;
  if (s.stop_training) return;
  for (std::size_t i = 0; i < s.last_input.size(); ++i)
    check(all_finite(s.last_input[i]),
          "training: input {} of batch {} of epoch {} holds a value that is inf or NaN; mend the data", i, s.num_batch,
          s.epoch);
  fail(
      "training: the loss is {} in batch {} of epoch {} though its inputs are finite; try a smaller learning "
      "rate",
      s.last_loss.item(), s.num_batch, s.epoch);
}

}  // namespace halfgrad
