#include "callbacks/save_model.h"

#include "callbacks/learner.h"

namespace halfgrad {

using Every = SaveModelOptions::Every;

SaveModel::SaveModel(const SaveModelOptions& options)
    : TrackerCallback(options.monitor, options.mode, options.min_delta), options_(options) {
  check(!options.path.empty(), "SaveModel: the path is empty; expected that of a file");
  check(options.every != Every::improvement || options.path.find("{}") == std::string::npos,
        "SaveModel: the path '{}' differs from epoch to epoch, but the best model is one file; leave the {{}} out",
        options.path);
  check(options.batches > 0, "SaveModel: every {} batches; expected at least 1", options.batches);
}

void SaveModel::on_train_begin(Learner& learn) {
  saved_ = false;
  if (options_.every == Every::improvement) TrackerCallback::on_train_begin(learn);
}

void SaveModel::on_batch_end(Learner& learn) {
  const TrainingState& s = learn.state;
  if (options_.every == Every::batches && s.train && (s.iteration + 1) % options_.batches == 0) save(learn);
}

void SaveModel::on_epoch_end(Learner& learn) {
  if (options_.every == Every::epoch) save(learn);
  if (options_.every != Every::improvement) return;
  if (const std::optional<double> value = monitored(learn); value && improves(*value)) {
    saved_ = true;
    save(learn);
  }
}

void SaveModel::on_train_end(Learner& learn, std::exception_ptr error) {
  if (!saved_ || !options_.load_best || error) return;
  // Rates and momentum are those of the end of the run, which a schedule has put back.
  std::vector<std::vector<optim::ParamGroup>> groups;
  for (const auto& optimizer : learn.optimizers()) groups.push_back(optimizer->groups());
  learn.load(options_.path);
  for (std::size_t o = 0; o < groups.size(); ++o)
    for (std::size_t g = 0; g < groups[o].size(); ++g) {
      optim::ParamGroup& group = learn.optimizers()[o]->groups()[g];
      group.lr = groups[o][g].lr;
      group.momentum = groups[o][g].momentum;
    }
}

void SaveModel::save(Learner& learn) const {
  std::string path = options_.path;
  if (const std::size_t at = path.find("{}"); at != std::string::npos)
    path.replace(at, 2, std::to_string(learn.state.epoch));
  learn.save(path);
}

SavedState SaveModel::save_state() const {
  SavedState state = TrackerCallback::save_state();
  state.numbers["saved"] = saved_;
  return state;
}

void SaveModel::load_state(const SavedState& state) {
  TrackerCallback::load_state(state);
  saved_ = state.number("saved") != 0;
}

}  // namespace halfgrad
