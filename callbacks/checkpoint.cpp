#include "callbacks/checkpoint.h"

#include <charconv>
#include <set>

#include "callbacks/learner.h"
#include "engine/random.h"

namespace halfgrad {

namespace {

constexpr const char* kVersion = "halfgrad.version";

// --- numbers as text, and back ---------------------------------------------------------------------------------------

template <class T>
std::string text_of(T value) {
  return fmt::format("{}", value);  // for a double the shortest text that gives back the same bits
}

template <class T>
T number_of(const Checkpoint& checkpoint, const std::string& key) {
  const auto found = checkpoint.metadata.find(key);
  check(found != checkpoint.metadata.end(), "checkpoint: there is no '{}' in its metadata", key);
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "checkpoint: '{}' is '{}', expected a number", key,
        text);
  return value;
}

// --- a SavedState under a prefix -------------------------------------------------------------------------------------

void put(Checkpoint& checkpoint, const std::string& prefix, const SavedState& state) {
  for (const auto& [name, tensor] : state.tensors) checkpoint.tensors[prefix + name] = tensor;
  for (const auto& [name, number] : state.numbers) checkpoint.metadata[prefix + name] = text_of(number);
}

SavedState take(const Checkpoint& checkpoint, const std::string& prefix) {
  SavedState state;
  const auto each = [&](const auto& map, auto f) {
    for (auto it = map.lower_bound(prefix); it != map.end() && it->first.starts_with(prefix); ++it)
      f(it->first.substr(prefix.size()), *it);
  };
  each(checkpoint.tensors, [&](const std::string& name, const auto& entry) { state.tensors[name] = entry.second; });
  each(checkpoint.metadata, [&](const std::string& name, const auto& entry) {
    state.numbers[name] = number_of<double>(checkpoint, entry.first);
  });
  return state;
}

// --- optimizers: their states number the parameters, a checkpoint names them -----------------------------------------

std::string of_parameter(const std::string& name) { return fmt::format("optimizer/{}/", name); }
std::string of_optimizer(std::size_t i) { return fmt::format("optimizer.{}", i); }

struct NamedEntry {
  std::string name;
  const optim::Entry* entry;
};

// In the order in which the optimizer numbers them.
std::vector<NamedEntry> named_entries(const nn::Module& model, const optim::Optimizer& optimizer) {
  std::map<const TensorImpl*, std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) names[parameter.impl()] = name;
  std::vector<NamedEntry> result;
  for (const optim::ParamGroup& group : optimizer.groups())
    for (const optim::Entry& entry : group.entries) {
      const auto name = names.find(entry.param.impl());
      check(name != names.end(), "checkpoint: a parameter of shape {} of the optimizer is not in the model",
            entry.param.shape());
      result.push_back({name->second, &entry});
    }
  return result;
}

void put_optimizer(Checkpoint& checkpoint, std::size_t i, const nn::Module& model, const optim::Optimizer& optimizer) {
  SavedState state = optimizer.state_dict();
  std::size_t number = 0;
  for (const auto& [name, entry] : named_entries(model, optimizer)) {
    const std::string of_entry = fmt::format("{}.", number++);
    SavedState part;
    const auto move = [&](auto& from, auto& to) {
      for (auto it = from.lower_bound(of_entry); it != from.end() && it->first.starts_with(of_entry);)
        to[it->first.substr(of_entry.size())] = it->second, it = from.erase(it);
    };
    move(state.tensors, part.tensors);
    move(state.numbers, part.numbers);
    put(checkpoint, of_parameter(name), part);
  }
  checkpoint.metadata[of_optimizer(i)] = optimizer.name();
  put(checkpoint, of_optimizer(i) + ".", state);  // what is left: the groups
}

SavedState take_optimizer(const Checkpoint& checkpoint, std::size_t i, const nn::Module& model,
                          const optim::Optimizer& optimizer) {
  const auto saved_name = checkpoint.metadata.find(of_optimizer(i));
  check(saved_name != checkpoint.metadata.end(), "checkpoint: it has {} optimizers, this Learner more", i);
  check(saved_name->second == optimizer.name(),
        "checkpoint: it was saved with the optimizer {}, this Learner has {}; use the same one, or load the weights "
        "alone "
        "with .with_opt = false",
        saved_name->second, optimizer.name());
  SavedState state = take(checkpoint, of_optimizer(i) + ".");
  std::size_t number = 0;
  for (const auto& [name, entry] : named_entries(model, optimizer)) {
    const std::string of_entry = fmt::format("{}.", number++);
    SavedState part = take(checkpoint, of_parameter(name));
    // Saved without a master: a weight in full precision is one.
    const auto weight = checkpoint.tensors.find(name);
    if (entry->has_master() && !part.tensors.contains("master") && weight != checkpoint.tensors.end() &&
        weight->second.dtype() != f16)
      part.tensors["master"] = weight->second;
    for (auto& [key, tensor] : part.tensors) state.tensors[of_entry + key] = tensor;
    for (auto& [key, value] : part.numbers) state.numbers[of_entry + key] = value;
  }
  return state;
}

// --- loss scales -----------------------------------------------------------------------------------------------------

std::string of_scaler(std::size_t i) { return fmt::format("scaler.{}.", i); }

SavedState state_of(const LossScaler& scaler) {
  return {.tensors = {},
          .numbers = {{"scale", scaler.scale},
                      {"noskip", static_cast<double>(scaler.noskip)},
                      {"skipped", static_cast<double>(scaler.skipped)},
                      {"at_floor", static_cast<double>(scaler.at_floor)}}};
}

// A static scale is the user's choice and stays.
LossScaler take_scaler(const Checkpoint& checkpoint, std::size_t i, LossScaler scaler) {
  const std::string prefix = of_scaler(i);
  if (!checkpoint.metadata.contains(prefix + "scale")) return scaler;  // saved in f32
  if (scaler.dynamic)
    scaler.scale = std::clamp(number_of<double>(checkpoint, prefix + "scale"), scaler.min_scale, scaler.max_scale);
  scaler.noskip = number_of<std::int64_t>(checkpoint, prefix + "noskip");
  scaler.skipped = number_of<std::int64_t>(checkpoint, prefix + "skipped");
  scaler.at_floor = number_of<std::int64_t>(checkpoint, prefix + "at_floor");
  return scaler;
}

// --- callbacks: by the name of their class, a second one of it with a number -----------------------------------------

std::vector<std::pair<std::string, CallbackPtr>> prefixes_of(const std::vector<CallbackPtr>& callbacks) {
  std::vector<std::pair<std::string, CallbackPtr>> result;
  std::map<std::string, int> count;
  for (const CallbackPtr& callback : callbacks) {
    const std::string name = callback->name();
    const int number = ++count[name];
    result.emplace_back(fmt::format("callback/{}{}/", name, number == 1 ? "" : fmt::format(".{}", number)), callback);
  }
  return result;
}

// The "callback/Name/" of every callback that has left something.
std::set<std::string> saved_prefixes(const Checkpoint& checkpoint) {
  std::set<std::string> result;
  const auto collect = [&](const auto& map) {
    for (const auto& [key, value] : map)
      if (key.starts_with("callback/")) result.insert(key.substr(0, key.find('/', 9) + 1));
  };
  collect(checkpoint.tensors);
  collect(checkpoint.metadata);
  return result;
}

// The master of a weight if there is one, else the weight.
const Tensor& precise(const Checkpoint& checkpoint, const std::string& name, const Tensor& weight) {
  const auto master = checkpoint.tensors.find(of_parameter(name) + "master");
  const bool rounded =
      master != checkpoint.tensors.end() && weight.dtype() == f16 && master->second.shape() == weight.shape();
  return rounded ? master->second : weight;
}

bool is_of_model(const std::string& name) {
  return !name.starts_with("optimizer/") && !name.starts_with("gradient/") && !name.starts_with("callback/");
}

}  // namespace

RunPosition position_of(const Checkpoint& checkpoint) {
  check(
      checkpoint.metadata.contains("run.epoch"),
      "resume: the checkpoint was not saved in or after a run, so there is nothing to go on with; load() takes what it "
      "has");
  return {.epoch = number_of<int>(checkpoint, "run.epoch"),
          .batch = number_of<std::int64_t>(checkpoint, "run.batch"),
          .iteration = number_of<std::int64_t>(checkpoint, "run.iteration"),
          .loader_epoch = number_of<std::int64_t>(checkpoint, "run.loader_epoch")};
}

Checkpoint Learner::make_checkpoint() {
  check(!in_step_, "save: in the middle of a training batch; call it between steps, in on_batch_end for example");
  take_losses(true);
  const NoGrad guard;
  if (mixed_precision_) mixed_precision_->adopt_changed_weights(*this);
  Checkpoint checkpoint;
  checkpoint.metadata[kVersion] = text_of(1);
  for (const auto& [name, tensor] : model_.state_dict()) {
    check(name.find('/') == std::string::npos,
          "save: the name '{}' of the model has a '/', which separates the parts of "
          "a checkpoint; rename it",
          name);
    checkpoint.tensors[name] = tensor.clone();
  }
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    put_optimizer(checkpoint, i, model_, *optimizers_[i]);
    if (mixed_precision_) put(checkpoint, of_scaler(i), state_of(mixed_precision_->scaler(i)));
  }
  const GeneratorState random = default_generator().state();
  checkpoint.metadata["random.seed"] = text_of(random.seed);
  checkpoint.metadata["random.offset"] = text_of(random.offset);

  for (const auto& [name, parameter] : model_.named_parameters())
    if (parameter.grad().defined()) checkpoint.tensors["gradient/" + name] = parameter.grad().clone();
  for (const auto& [prefix, callback] : prefixes_of(callbacks_)) put(checkpoint, prefix, callback->save_state());
  if (position_) {
    const bool left_epoch = state.stop_epoch && state.train;  // the rest of its batches will not be
    const auto run = [&](const char* key, auto value) {
      checkpoint.metadata[std::string("run.") + key] = text_of(value);
    };
    run("epoch", position_->epoch);
    run("batch", left_epoch ? data_.train.size() : position_->batch);
    run("iteration", position_->iteration);
    run("loader_epoch", position_->loader_epoch);
    run("batches_per_epoch", data_.train.size());
    run("stop_training", static_cast<int>(state.stop_training));
    run("active_optimizer", active_);
    run("smooth_loss", smoother_.state().first);
    run("smooth_weight", smoother_.state().second);
    checkpoint.tensors["callback/Learner/last_metrics"] = from_vector(state.last_metrics);
  }
  return checkpoint;
}

void Learner::restore(const Checkpoint& checkpoint, const LoadOptions& options) {
  const bool ours = checkpoint.metadata.contains(kVersion);
  check(!ours || checkpoint.metadata.at(kVersion) == "1",
        "checkpoint: its version is {}, expected 1; it was saved by a newer halfgrad",
        ours ? checkpoint.metadata.at(kVersion) : "");
  nn::StateDict weights;
  for (const auto& [name, tensor] : checkpoint.tensors)
    if (!ours || is_of_model(name)) weights.emplace_back(name, precise(checkpoint, name, tensor));
  const bool all = ours && options.with_opt;

  // Look at everything before anything changes; load_state_dict does so for the weights.
  std::vector<SavedState> states;
  std::vector<LossScaler> scalers;
  GeneratorState random;
  if (all) {
    for (std::size_t i = 0; i < optimizers_.size(); ++i) {
      states.push_back(take_optimizer(checkpoint, i, model_, *optimizers_[i]));
      optimizers_[i]->check_state_dict(states.back());
      if (mixed_precision_) scalers.push_back(take_scaler(checkpoint, i, mixed_precision_->scaler(i)));
    }
    check(!checkpoint.metadata.contains(of_optimizer(optimizers_.size())),
          "checkpoint: it has more than the {} optimizers of this Learner", optimizers_.size());
    random = {.seed = number_of<std::uint64_t>(checkpoint, "random.seed"),
              .offset = number_of<std::uint64_t>(checkpoint, "random.offset")};
  }
  model_.load_state_dict(weights);
  if (!all) {
    for (const auto& optimizer : optimizers_)
      for (const auto& [name, entry] : named_entries(model_, *optimizer))
        if (Tensor master = entry->master; entry->has_master())
          master.copy_(precise(checkpoint, name, checkpoint.tensors.at(name)));
    return;
  }
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    optimizers_[i]->load_state_dict(states[i]);
    if (mixed_precision_) mixed_precision_->set_scaler(scalers[i], i);
  }
  default_generator().set_state(random);
}

void Learner::restore_run(const Checkpoint& checkpoint) {
  const std::int64_t batches = number_of<std::int64_t>(checkpoint, "run.batches_per_epoch");
  check(batches == data_.train.size(), "resume: the checkpoint is of a run of {} batches per epoch, the data has {}",
        batches, data_.train.size());
  restore_callbacks(checkpoint);
  restore_gradients(checkpoint);
  use_optimizer(number_of<std::size_t>(checkpoint, "run.active_optimizer"));
  smoother_.set_state(
      {number_of<double>(checkpoint, "run.smooth_loss"), number_of<double>(checkpoint, "run.smooth_weight")});
  state.smooth_loss = smoother_.value();
  state.last_metrics = checkpoint.tensors.at("callback/Learner/last_metrics").to_vector<double>();
  state.stop_training = number_of<int>(checkpoint, "run.stop_training") != 0;
}

void Learner::restore_callbacks(const Checkpoint& checkpoint) {
  std::set<std::string> saved = saved_prefixes(checkpoint);
  saved.erase("callback/Learner/");
  const auto callbacks = prefixes_of(callbacks_);
  for (const auto& [prefix, callback] : callbacks)
    if (saved.erase(prefix) > 0) callback->load_state(take(checkpoint, prefix));
  check(saved.empty(),
        "resume: the checkpoint has the state of {}, which this Learner does not have; add it, and fit as the run was "
        "begun",
        saved.empty() ? "" : saved.begin()->substr(9, saved.begin()->size() - 10));
}

void Learner::restore_gradients(const Checkpoint& checkpoint) {
  for (auto& [name, parameter] : model_.named_parameters())
    if (const auto gradient = checkpoint.tensors.find("gradient/" + name); gradient != checkpoint.tensors.end()) {
      Tensor leaf = parameter;
      leaf.set_grad(gradient->second.to(parameter.dtype()));
    }
}

void Learner::save(const std::string& path) {
  const Checkpoint checkpoint = make_checkpoint();
  save_safetensors(path, checkpoint.tensors, checkpoint.metadata);
}

void Learner::load(const std::string& path, const LoadOptions& options) {
  restore(Checkpoint{load_safetensors(path)}, options);
}

void Learner::resume(const std::string& path) {
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint{load_safetensors(path)});
  position_of(*checkpoint);
  restore(*checkpoint);
  resumed_ = checkpoint;
}

}  // namespace halfgrad
