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
      result.numbers[fmt::format("{}.steps", i)] = static_cast<double>(entry.steps());
      ++i;
    }
  }
  result.numbers["parameters"] = static_cast<double>(i);
  result.numbers["groups"] = static_cast<double>(groups_.size());
  return result;
}

namespace {

double number(const SavedState& saved, const std::string& name, const std::string& optimizer) {
  const auto found = saved.numbers.find(name);
  check(found != saved.numbers.end(), "{}: the saved state has no number \"{}\"; is it an optimizer's?", optimizer,
        name);
  return found->second;
}

// The tensors by parameter and name. Error for one that fits no parameter.
std::vector<std::map<std::string, Tensor>> tensors_by_entry(const SavedState& saved,
                                                            const std::vector<const Entry*>& entries,
                                                            const std::string& optimizer) {
  std::vector<std::map<std::string, Tensor>> tensors(entries.size());
  for (const auto& [name, tensor] : saved.tensors) {
    std::size_t i = 0;
    const char* const end = name.data() + name.size();
    const auto [dot, error] = std::from_chars(name.data(), end, i);
    check(error == std::errc() && dot != end && *dot == '.' && i < entries.size(),
          "{}: the saved state has a tensor \"{}\"; expected a parameter's number, 0 to {}, a dot and a name",
          optimizer, name, entries.size() - 1);
    const Shape& shape = entries[i]->param.shape();
    check(tensor.defined() && tensor.shape() == shape, "{}: \"{}\" in the saved state has shape {}, its parameter {}",
          optimizer, name, tensor.defined() ? tensor.shape().str() : "(undefined)", shape);
    check(is_floating(tensor.dtype()), "{}: \"{}\" in the saved state is {}; expected a float dtype", optimizer, name,
          name_of(tensor.dtype()));
    tensors[i][dot + 1] = tensor;
  }
  return tensors;
}

}  // namespace

void Optimizer::check_state_dict(const SavedState& saved) const {
  std::vector<const Entry*> entries;
  for (const ParamGroup& group : groups_)
    for (const Entry& entry : group.entries) entries.push_back(&entry);
  const auto expect = [&](const char* what, std::size_t here) {
    const double there = number(saved, what, name_);
    check(there == static_cast<double>(here),
          "{}: the saved state is of {} {}, this optimizer has {}; build it as the one that was saved", name_, there,
          what, here);
  };
  expect("parameters", entries.size());
  expect("groups", groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const auto& hyperparameter : kHyperparameters) number(saved, key_of(g, hyperparameter.name), name_);
  for (std::size_t i = 0; i < entries.size(); ++i) number(saved, fmt::format("{}.steps", i), name_);
  tensors_by_entry(saved, entries, name_);
}

void Optimizer::load_state_dict(const SavedState& saved) {
  check_state_dict(saved);
  const NoGrad guard;
  std::vector<std::pair<ParamGroup*, Entry*>> entries;
  std::vector<const Entry*> in_order;
  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries) {
      entries.emplace_back(&group, &entry);
      in_order.push_back(&entry);
    }
  auto tensors = tensors_by_entry(saved, in_order, name_);

  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const auto& [name, value] : kHyperparameters) groups_[g].*value = number(saved, key_of(g, name), name_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& [group, entry] = entries[i];
    const auto steps = static_cast<std::int64_t>(number(saved, fmt::format("{}.steps", i), name_));
    entry->step_count = full({}, steps, i64, entry->param.device());
    entry->state_made_at = -1;
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
