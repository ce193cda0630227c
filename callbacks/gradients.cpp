#include "callbacks/gradients.h"

#include <algorithm>
#include <cmath>

#include "callbacks/learner.h"
#include "engine/ops/elementwise.h"
#include "optim/clip.h"

namespace halfgrad {

GradientClipping::GradientClipping(double clip) : clip_(clip) {
  check(clip > 0 && std::isfinite(clip), "GradientClipping: clip is {}; expected a positive norm", clip);
}

void GradientClipping::on_backward_begin(Learner& learn) {
  std::optional<double>& clip = learn.state.step.clip;
  clip = std::min(clip.value_or(clip_), clip_);
}

AccumulateScheduler::AccumulateScheduler(std::int64_t n_step, bool drop_last) : n_step_(n_step), drop_last_(drop_last) {
  check(n_step > 0, "AccumulateScheduler: n_step is {}; expected at least 1", n_step);
}

void AccumulateScheduler::on_backward_begin(Learner& learn) {
  TrainingState& s = learn.state;
  const data::DataLoader& loader = learn.data().train;
  const std::int64_t first = s.num_batch / n_step_ * n_step_, last = std::min(first + n_step_, loader.size()) - 1;
  std::int64_t samples = 0;
  for (std::int64_t batch = first; batch <= last; ++batch) samples += loader.samples_in(batch);
  s.last_loss = s.last_loss * (static_cast<double>(loader.samples_in(s.num_batch)) / static_cast<double>(samples));

  const bool dropped = drop_last_ && last - first + 1 < n_step_;
  s.skip_step = s.num_batch != last || dropped;
  s.skip_zero = s.num_batch != last;
}

}  // namespace halfgrad
