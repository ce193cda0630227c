#include "callbacks/recorder.h"

#include "callbacks/learner.h"
#include "callbacks/progress.h"

namespace halfgrad {

void Recorder::on_train_begin(Learner&) {
  losses.clear();
  lrs.clear();
  moms.clear();
  epochs.clear();
}

void Recorder::on_epoch_begin(Learner&) { epoch_started_ = seconds_now(); }

void Recorder::on_backward_begin(Learner& learn) {
  const optim::ParamGroup& group = learn.optimizer().groups().back();
  losses.push_back(learn.state.last_loss.item());
  lrs.push_back(group.lr);
  moms.push_back(group.momentum);
}

void Recorder::on_epoch_end(Learner& learn) {
  const TrainingState& s = learn.state;
  epochs.push_back({.seconds = seconds_now() - epoch_started_,
                    .train_loss = s.smooth_loss,
                    .metrics = s.skip_validate ? std::vector<double>() : s.last_metrics});
}

}  // namespace halfgrad
