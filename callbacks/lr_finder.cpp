#include "callbacks/lr_finder.h"

#include <algorithm>
#include <cmath>

#include "callbacks/checkpoint.h"
#include "callbacks/learner.h"
#include "callbacks/plot.h"
#include "optim/anneal.h"

namespace halfgrad {

LRFinder::LRFinder(const LrFindOptions& options) : options_(options) {
  check(options.start_lr > 0 && options.end_lr > options.start_lr && std::isfinite(options.end_lr),
        "lr_find: start_lr {} and end_lr {}; expected 0 < start_lr < end_lr", options.start_lr, options.end_lr);
  check(options.num_it > 1, "lr_find: num_it is {}; expected at least 2", options.num_it);
}

void LRFinder::on_train_begin(Learner& learn) {
  learn.state.skip_validate = true;
  tried_.clear();
  lrs_.clear();
  losses_.clear();
  known_ = 0;
}

void LRFinder::on_batch_begin(Learner& learn) {
  if (!learn.state.train) return;
  const double fraction = static_cast<double>(learn.state.iteration) / (options_.num_it - 1);
  tried_.push_back(optim::anneal_exp(options_.start_lr, options_.end_lr, std::min(fraction, 1.0)));
  learn.optimizer().set_lr(tried_.back());
}

void LRFinder::on_loss_known(Learner& learn, const KnownLoss& known) {
  TrainingState& s = learn.state;
  const double lr = tried_[known_++];
  if (s.stop_training) return;  // batches that had begun before the end was known
  const bool finite = std::isfinite(known.loss);
  if (finite) {
    lrs_.push_back(lr);
    losses_.push_back(s.smooth_loss);
    best_ = losses_.size() == 1 ? s.smooth_loss : std::min(best_, s.smooth_loss);
  }
  const bool diverged = !finite || (options_.stop_div && s.smooth_loss > 4 * best_);
  if (diverged || static_cast<int>(known_) >= options_.num_it) s.stop_epoch = s.stop_training = true;
}

namespace {
// The first rates are too small to matter, and the last points belong to the explosion.
constexpr std::size_t kSkipStart = 10, kSkipEnd = 5;

std::pair<std::size_t, std::size_t> shown(std::size_t points) {
  return points > kSkipStart + kSkipEnd + 2 ? std::pair(kSkipStart, points - kSkipEnd)
                                            : std::pair(std::size_t{0}, points);
}

// The slope at a point is that between its neighbours.
std::optional<double> steepest(const std::vector<double>& lrs, const std::vector<double>& losses) {
  const auto [first, last] = shown(losses.size());
  std::optional<double> suggestion;
  double lowest = 0;
  for (std::size_t i = first + 1; i + 1 < last; ++i) {
    const double slope = losses[i + 1] - losses[i - 1];
    if (slope < lowest) {
      lowest = slope;
      suggestion = lrs[i];
    }
  }
  return suggestion;
}
}  // namespace

void LrFindResult::plot(const std::string& path) const {
  const auto [first, last] = shown(losses.size());
  const auto part = [first = first, last = last](const std::vector<double>& all) {
    return std::vector(all.begin() + static_cast<std::ptrdiff_t>(first),
                       all.begin() + static_cast<std::ptrdiff_t>(last));
  };
  save_chart({.title = "Learning rate range test",
              .x_label = "learning rate",
              .y_label = "loss",
              .curves = {{"loss", part(lrs), part(losses)}},
              .log_x = true},
             path);
}

LrFindResult LRFinder::result() const { return {lrs_, losses_, steepest(lrs_, losses_)}; }

LrFindResult Learner::lr_find(const LrFindOptions& options) {
  const auto finder = std::make_shared<LRFinder>(options);
  check(data_.train.size() > 0, "lr_find: the training data is empty; expected at least one item");
  // All of the Learner as it is, which the finder's run is going to change.
  const Checkpoint before = make_checkpoint();
  const TrainingState state_before = state;
  const std::optional<RunPosition> position_before = position_;
  const std::shared_ptr<const Checkpoint> resumed_before = std::exchange(resumed_, nullptr);
  const Smoother smoother_before = smoother_;
  const std::vector<CallbackPtr> callbacks_before = callbacks_;
  const std::int64_t epoch_before = data_.train.epoch();
  const std::size_t active_before = active_;

  std::erase_if(callbacks_, [](const CallbackPtr& callback) { return !callback->in_lr_find(); });
  add(finder);
  std::exception_ptr error;
  try {
    fit(static_cast<int>((options.num_it + data_.train.size() - 1) / data_.train.size()), options.start_lr, options.wd);
  } catch (...) {
    error = std::current_exception();
  }
  callbacks_ = callbacks_before;
  restore(before);
  restore_callbacks(before);
  restore_gradients(before);
  state = state_before;
  position_ = position_before;
  resumed_ = resumed_before;
  smoother_ = smoother_before;
  active_ = active_before;
  data_.train.set_epoch(epoch_before);
  if (error) std::rethrow_exception(error);
  return finder->result();
}

}  // namespace halfgrad
