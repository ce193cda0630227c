#include "callbacks/finite_loss.h"

#include <cmath>
#include <utility>

#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace halfgrad {

bool all_finite(const Tensor& x) {
  NoGrad guard;
  return !is_floating(x.dtype()) || all(isfinite(x)).item<bool>();
}

void FiniteLoss::on_loss_known(Learner& learn, const KnownLoss& known) {
  if (!learn.mixed_precision() && !failed_ && !std::isfinite(known.loss)) failed_ = known;
}

void FiniteLoss::on_backward_begin(Learner& learn) {
  TrainingState& s = learn.state;
  if (learn.mixed_precision()) return;
  if (!s.last_loss.device().is_cpu()) {
    s.step.must_be_finite = s.last_loss;
    return;
  }
  // A look costs nothing, and it sees what callbacks have made of the loss.
  const double loss = s.last_loss.item();
  if (!std::isfinite(loss)) {
    failed_ = {.loss = loss, .epoch = s.epoch, .num_batch = s.num_batch};
    s.skip_bwd = s.skip_step = true;
  }
}

void FiniteLoss::on_batch_end(Learner& learn) {
  const TrainingState& s = learn.state;
  if (!s.train || !failed_) return;
  const KnownLoss failed = *std::exchange(failed_, std::nullopt);
  if (s.stop_training) return;
  if (failed.epoch == s.epoch && failed.num_batch == s.num_batch)  // else its inputs are gone
    for (std::size_t i = 0; i < s.last_input.size(); ++i)
      check(all_finite(s.last_input[i]),
            "training: input {} of batch {} of epoch {} holds a value that is inf or NaN; mend the data", i,
            failed.num_batch, failed.epoch);
  fail("training: the loss is {} in batch {} of epoch {}{}", std::isnan(failed.loss) ? NAN : failed.loss,
       failed.num_batch, failed.epoch,
       failed.num_batch == s.num_batch ? " though its inputs are finite; try a smaller learning rate"
                                       : "; try a smaller learning rate, and look at the data");
}

void FiniteLoss::on_epoch_end(Learner& learn) { on_batch_end(learn); }

}  // namespace halfgrad
