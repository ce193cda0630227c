#include "nn/module.h"

#include <algorithm>
#include <optional>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "engine/class_name.h"
#include "nn/walk.h"

namespace halfgrad::nn {

namespace {

// visit() is one function for reading and writing; reading through it leaves the module as it is.
Module& readable(const Module& module) { return const_cast<Module&>(module); }

NamedTensors unique_tensors(const Module& root, Role wanted) {
  NamedTensors found;
  std::unordered_set<const TensorImpl*> seen;
  each_tensor(readable(root), [&](const std::string& path, Tensor& x, Role role, Module&) {
    if (role == wanted && seen.insert(x.impl()).second) found.emplace_back(path, x);
  });
  return found;
}

// An Error that says in which layer of the called model it happened.
struct LayerError : Error {
  const Module* layer;
  std::string cause;

  LayerError(Module& called, const Module* layer, const std::string& cause)
      : Error(where(called, layer) + cause), layer(layer), cause(cause) {}

  static std::string where(Module& called, const Module* layer) {
    for (const auto& [path, module] : called.named_modules())
      if (module == layer && !path.empty()) return fmt::format("layer {}, ", path);
    return "";
  }
};

}  // namespace

// --- computing ---

Tensor Module::forward(const Tensor&) {
  fail(
      "{}: forward() is not defined; override `Tensor forward(const Tensor& x)`, or forward_many for several "
      "inputs",
      name());
}

Tensor Module::forward_many(const Tensors& inputs) {
  fail("{}: takes one input but was called with {}; a module of several inputs overrides forward_many", name(),
       inputs.size());
}

Tensor Module::forward_activated(const Tensor&, Activation) {
  fail("{}: it cannot apply an activation; ask can_apply() before", name());
}

template <class F>
Tensor Module::in_layer(F f) {
  try {
    return f();
  } catch (const LayerError& error) {
    throw LayerError(*this, error.layer, error.cause);  // with the path as seen from here
  } catch (const Error& error) {
    throw LayerError(*this, this, fmt::format("{}: {}", describe(), error.what()));
  }
}

Tensor Module::operator()(const Tensor& x, Activation activation) {
  return in_layer([&] { return forward_activated(x, activation); });
}

Tensor Module::call(Tensors inputs) {
  // Copies of the lists, since a hook may remove itself.
  for (const auto& [id, hook] : std::vector(forward_pre_hooks_)) hook(*this, inputs);
  Tensor output = in_layer([&] { return inputs.size() == 1 ? forward(inputs[0]) : forward_many(inputs); });
  for (const auto& [id, hook] : std::vector(forward_hooks_))
    if (Tensor replacement = hook(*this, inputs, output); replacement.defined()) output = replacement;
  return output;
}

// --- what it is made of ---

NamedTensors Module::named_parameters() const { return unique_tensors(*this, Role::parameter); }
NamedTensors Module::named_buffers() const { return unique_tensors(*this, Role::buffer); }

Tensors Module::parameters() const {
  Tensors all;
  for (auto& [path, parameter] : named_parameters()) all.push_back(parameter);
  return all;
}

NamedModules Module::named_modules() {
  NamedModules found;
  std::unordered_set<const Module*> seen;
  each_module(*this, [&](const std::string& path, Module& module) {
    if (seen.insert(&module).second) found.emplace_back(path, &module);
  });
  return found;
}

NamedModules Module::children() {
  struct Children : Visitor {
    NamedModules found;
    void module(const std::string& name, Module& child) override { found.emplace_back(name, &child); }
  } children;
  visit(children);
  return children.found;
}

std::int64_t Module::num_parameters(bool trainable_only) const {
  std::int64_t n = 0;
  for (const Tensor& parameter : parameters())
    if (!trainable_only || parameter.requires_grad()) n += parameter.numel();
  return n;
}

// --- conversion ---

Module& Module::to(DType dtype) {
  check(is_floating(dtype), "{}: to({}): a model computes in f16, f32 or f64", name(), name_of(dtype));
  each_tensor(*this, [&](const std::string&, Tensor& x, Role, Module& owner) {
    const DType target = dtype == f16 && owner.keeps_float() ? f32 : dtype;
    if (is_floating(x.dtype()) && x.dtype() != target) x.set_data(x.detach().to(target));
  });
  return *this;
}

Module& Module::to(Device device) {
  each_tensor(*this, [&](const std::string&, Tensor& x, Role, Module&) {
    if (x.device() != device) x.set_data(x.detach().to(device));
  });
  return *this;
}

DType Module::dtype() const {
  std::optional<DType> found;
  each_tensor(readable(*this), [&](const std::string&, Tensor& x, Role role, Module& owner) {
    if (!found && role == Role::parameter && is_floating(x.dtype()) && !owner.keeps_float()) found = x.dtype();
  });
  return found.value_or(f32);
}

Module& Module::unshare() {
  // With each own copy the tensor it replaces, which thereby lives on: no new tensor can take its address.
  std::unordered_map<const TensorImpl*, std::pair<Tensor, Tensor>> copies;
  each_tensor(*this, [&](const std::string&, Tensor& x, Role, Module&) {
    auto& [old, own] = copies[x.impl()];
    if (!old.defined()) {
      old = x;
      own = x.detach().clone().requires_grad_(x.requires_grad());
    }
    x = own;
  });
  return *this;
}

// --- modes ---

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children()) child->train(on);
}

Module& Module::requires_grad_(bool on) {
  for (Tensor& parameter : parameters()) parameter.requires_grad_(on);
  return *this;
}

void Module::zero_grad() {
  for (Tensor& parameter : parameters()) parameter.set_grad(Tensor());
}

Module& Module::apply(const std::function<void(Module&)>& f) {
  for (auto& [name, child] : children()) child->apply(f);
  f(*this);
  return *this;
}

// --- hooks ---

int Module::register_forward_pre_hook(ForwardPreHook hook) {
  forward_pre_hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

int Module::register_forward_hook(ForwardHook hook) {
  forward_hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

void Module::remove_hook(int id) {
  std::erase_if(forward_pre_hooks_, [&](const auto& entry) { return entry.first == id; });
  std::erase_if(forward_hooks_, [&](const auto& entry) { return entry.first == id; });
}

// --- text ---

std::string Module::name() const { return class_name(typeid(*this)); }

std::string Module::str() const {
  const NamedModules parts = readable(*this).children();
  if (parts.empty()) return describe();
  std::string text = name() + "(" + extra_repr() + "\n";
  for (const auto& [name, child] : parts) {
    text += "  (" + name + "): ";
    for (const char c : child->str()) text += c == '\n' ? "\n  " : std::string(1, c);
    text += "\n";
  }
  return text + ")";
}

}  // namespace halfgrad::nn
