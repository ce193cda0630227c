#include <unordered_map>
#include <unordered_set>

#include "nn/walk.h"

namespace halfgrad::nn {

namespace {

// "\n  title: a, b", or nothing for no names.
std::string listed(const char* title, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "" : fmt::format("\n  {}: {}", title, text);
}

}  // namespace

StateDict Module::state_dict() const {
  StateDict state;
  std::unordered_set<std::string> seen;
  each_tensor(const_cast<Module&>(*this), [&](const std::string& path, Tensor& x, Role, Module& owner) {
    check(seen.insert(path).second, "{}: visit() lists two tensors as \"{}\"; their names must differ", owner.name(),
          path);
    state.emplace_back(path, x.detach());
  });
  return state;
}

LoadReport Module::load_state_dict(const StateDict& state, bool strict) {
  std::unordered_map<std::string, Tensor> given(state.begin(), state.end());
  check(given.size() == state.size(), "load_state_dict: a name appears twice among the {} given; names must differ",
        state.size());

  LoadReport report;
  std::vector<std::string> unfit;
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  std::unordered_set<std::string> known;
  for (auto& [path, to] : state_dict()) {
    known.insert(path);
    const auto found = given.find(path);
    if (found == given.end()) {
      report.missing.push_back(path);
      continue;
    }
    const Tensor& from = found->second;
    if (!from.defined()) {
      unfit.push_back(fmt::format("{} is undefined", path));
    } else if (from.shape() != to.shape()) {
      unfit.push_back(fmt::format("{} is {}, the model's is {}", path, from.shape().str(), to.shape().str()));
    } else if (is_floating(from.dtype()) != is_floating(to.dtype())) {
      unfit.push_back(fmt::format("{} is {}, the model's is {}", path, name_of(from.dtype()), name_of(to.dtype())));
    } else {
      copies.emplace_back(to, from);
    }
  }
  for (const auto& [path, tensor] : state)
    if (!known.contains(path)) report.unexpected.push_back(path);

  const bool names_differ = !report.missing.empty() || !report.unexpected.empty();
  if (!unfit.empty() || (strict && names_differ)) {
    fail("load_state_dict: the state does not fit {}, which was left as it is:{}{}{}{}", name(), listed("unfit", unfit),
         listed("missing", report.missing), listed("unexpected", report.unexpected),
         strict && names_differ ? "\n  (strict = false passes over missing and unexpected names)" : "");
  }
  const NoGrad guard;
  for (auto& [to, from] : copies) to.copy_(from);
  return report;
}

}  // namespace halfgrad::nn
