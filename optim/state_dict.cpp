// What a checkpoint keeps of an optimizer, and how it comes back.

#include <charconv>

#include "optim/optimizer.h"

namespace halfgrad::optim {

namespace {

// The hyperparameters of a group, by the names that they have in a checkpoint.
struct Hyperparameter {
  const char* name;
  double ParamGroup::*value;
};
constexpr Hyperparameter kHyperparameters[] = {{"lr", &ParamGroup::lr},
                                               {"weight_decay", &ParamGroup::weight_decay},
                                               {"momentum", &ParamGroup::momentum},
                                               {"beta2", &ParamGroup::beta2}};

std::string key_of(std::size_t group, const char* hyperparameter) {
  return fmt::format("group.{}.{}", group, hyperparameter);
}

}  // namespace

SavedState Optimizer::state_dict() const {
  const NoGrad guard;
  SavedState result;
  std::size_t i = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& [name, value] : kHyperparameters) result.numbers[key_of(g, name)] = groups_[g].*value;
    for (const Entry& entry : groups_[g].entries) {
      if (entry.has_master()) result.tensors[fmt::format("{}.master", i)] = entry.master.clone();
      for (const auto& [name, tensor] : entry.state) result.tensors[fmt::format("{}.{}", i, name)] = tensor.clone();
      result.numbers[fmt::format("{}.steps", i)] = static_cast<double>(entry.steps);
      ++i;
    }
  }
  result.numbers["parameters"] = static_cast<double>(i);
  result.numbers["groups"] = static_cast<double>(groups_.size());
  return result;
}

void Optimizer::load_state_dict(const SavedState& saved) {
  const NoGrad guard;
  const auto number = [&](const std::string& name) {
    const auto found = saved.numbers.find(name);
    check(found != saved.numbers.end(), "{}: the saved state has no number \"{}\"; is it an optimizer's?", name_, name);
    return found->second;
  };
  const auto expect = [&](const char* what, std::size_t here) {
    check(number(what) == static_cast<double>(here),
          "{}: the saved state is of {} {}, this optimizer has {}; build it as the one that was saved", name_,
          number(what), what, here);
  };

  // Look at everything first, so that a state that does not fit changes nothing.
  std::vector<std::pair<ParamGroup*, Entry*>> entries;
  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries) entries.emplace_back(&group, &entry);
  expect("parameters", entries.size());
  expect("groups", groups_.size());

  std::vector<ParamGroup> hyperparameters(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const auto& [name, value] : kHyperparameters) hyperparameters[g].*value = number(key_of(g, name));

  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < entries.size(); ++i)
    steps.push_back(static_cast<std::int64_t>(number(fmt::format("{}.steps", i))));

  std::vector<std::map<std::string, Tensor>> tensors(entries.size());
  for (const auto& [name, tensor] : saved.tensors) {
    std::size_t i = 0;
    const char* const end = name.data() + name.size();
    const auto [dot, error] = std::from_chars(name.data(), end, i);
    check(error == std::errc() && dot != end && *dot == '.' && i < entries.size(),
          "{}: the saved state has a tensor \"{}\"; expected a parameter's number, 0 to {}, a dot and a name", name_,
          name, entries.size() - 1);
    const Shape& shape = entries[i].second->param.shape();
    check(tensor.defined() && tensor.shape() == shape, "{}: \"{}\" in the saved state has shape {}, its parameter {}",
          name_, name, tensor.defined() ? tensor.shape().str() : "(undefined)", shape.str());
    tensors[i][dot + 1] = tensor;
  }

  // Then copy it into the memory that is there.
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const auto& [name, value] : kHyperparameters) groups_[g].*value = hyperparameters[g].*value;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& [group, entry] = entries[i];
    entry->steps = steps[i];
    if (const auto master = tensors[i].extract("master")) {
      if (entry->param.dtype() == f16 && !entry->has_master())
        entry->master = empty(entry->param.shape(), f32, entry->param.device());
      entry->master.copy_(master.mapped());
      if (entry->has_master()) entry->param.copy_(entry->master);
    } else if (entry->has_master()) {
      entry->master.copy_(entry->param);
    }
    std::erase_if(entry->state, [&](const auto& old) { return !tensors[i].contains(old.first); });
    for (const auto& [name, tensor] : tensors[i]) state(*group, *entry, name).copy_(tensor);
  }
  for (ParamGroup& group : groups_) lay_out(group);  // some masters may be new
}

}  // namespace halfgrad::optim
