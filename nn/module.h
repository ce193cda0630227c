#pragma once
// Module: a piece of a network, made of parameters, buffers and other modules.
//
// A module says what it is made of in one place, visit(); names, conversion, saving, freezing and the summary
// are walks over it:
//
//   struct Net : nn::Module {
//     nn::Linear a{784, 128}, b{128, 10};
//     Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
//     void visit(nn::Visitor& v) override { v.module("a", a); v.module("b", b); }
//   };
//
// Modules are values. A copy has its own training flag but the same parameters, since a Tensor is a handle:
// copying a layer is how weights are tied.

#include <cstdint>
#include <functional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "engine/activation.h"
#include "engine/tensor.h"

namespace halfgrad::nn {

class Module;

/// Receives what a module is made of. An undefined tensor (a bias that is not wanted) may be passed and is
/// left out of every walk.
class Visitor {
 public:
  virtual ~Visitor() = default;
  /// Trained by the optimizer.
  virtual void parameter(const std::string& /*name*/, Tensor& /*parameter*/) {}
  /// Saved and converted with the module, but not trained.
  virtual void buffer(const std::string& /*name*/, Tensor& /*buffer*/) {}
  virtual void module(const std::string& /*name*/, Module& /*child*/) {}
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using NamedModules = std::vector<std::pair<std::string, Module*>>;
/// Everything that a model has learned, in the order of visit(): what is written to a file.
using StateDict = NamedTensors;

/// The names that load_state_dict(state, strict = false) passed over.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the state
  std::vector<std::string> unexpected;  ///< in the state, not in the model
};

class Module {
 public:
  virtual ~Module() = default;

  // --- computing: override one of the two; call the module itself, which also runs its hooks ---
  virtual Tensor forward(const Tensor& x);
  /// For a module of several inputs.
  virtual Tensor forward_many(const Tensors& inputs);
  Tensor operator()(const Tensor& x) { return call({x}); }
  Tensor operator()(const Tensors& inputs) { return call(inputs); }

  // --- a layer and the activation behind it in one pass, with the same bits: Sequential joins them where it can. Not when one
  // of them has hooks, which are to see what lies between ---
  /// The activation that this module is, if it is one that others can apply.
  Activation as_activation() const { return has_hooks() ? Activation::none : activation(); }
  bool can_apply(Activation activation) const {
    return activation != Activation::none && !has_hooks() && applies(activation);
  }
  /// activation((*this)(x)), if can_apply(activation).
  Tensor operator()(const Tensor& x, Activation activation);

  // --- what it is made of ---
  virtual void visit(Visitor&) {}
  /// This module's parameters and its children's, in the order of visit(); a tied one appears once, under its
  /// first name. Names are paths such as "features.0.weight".
  NamedTensors named_parameters() const;
  Tensors parameters() const;
  NamedTensors named_buffers() const;
  /// This module (named "") and everything below it, parents before children.
  NamedModules named_modules();
  NamedModules children();
  std::int64_t num_parameters(bool trainable_only = false) const;

  // --- conversion: every handle to a parameter sees it, so an optimizer goes on working ---
  /// Converts the floating parameters and buffers, with one rounding; gradients of converted ones are
  /// dropped. In to(f16) modules that keep floats stay f32, bit for bit. Integer and bool buffers stay.
  Module& to(DType dtype);
  Module& to(Device device);
  /// True for a module whose own parameters and buffers must not be stored in f16 (BatchNorm).
  virtual bool keeps_float() const { return false; }
  /// What the module computes in: the dtype of its first floating parameter outside of modules that keep
  /// floats; f32 when there is none.
  DType dtype() const;

  /// Gives this module its own copies of the parameters and buffers that it shares with the module it was
  /// copied from: `Net second = first; second.unshare();`. Ties among them stay.
  Module& unshare();

  // --- modes ---
  /// For this module and all below it. Dropout and BatchNorm behave differently while training.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  /// Freezes (false) or unfreezes all parameters.
  Module& requires_grad_(bool on = true);
  /// Drops all gradients.
  void zero_grad();
  /// Calls f on every module, children before parents: `model.apply([](nn::Module& m) { ... })`.
  Module& apply(const std::function<void(Module&)>& f);

  // --- saving ---
  /// Parameters and buffers, sharing memory with the module (clone() what must survive the next step). A tied
  /// parameter is listed under each of its names.
  StateDict state_dict() const;
  /// Copies the values into the existing storage, converted with one rounding. Throws Error, before anything
  /// changes, with a message that lists all wrong shapes and, when strict, all missing and unexpected names.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

  // --- hooks on a call of this very module; moved with it, not copied ---
  /// May change the inputs.
  using ForwardPreHook = std::function<void(Module&, Tensors& inputs)>;
  /// A defined result replaces the output.
  using ForwardHook = std::function<Tensor(Module&, const Tensors& inputs, const Tensor& output)>;
  int register_forward_pre_hook(ForwardPreHook hook);
  int register_forward_hook(ForwardHook hook);
  /// Removes either kind; an id that is not there is ignored.
  void remove_hook(int id);

  // --- text ---
  /// The class's name, without namespaces.
  virtual std::string name() const;
  /// What str() shows between the parentheses: "784, 128".
  virtual std::string extra_repr() const { return ""; }
  /// "Linear(784, 128)"
  std::string describe() const { return name() + "(" + extra_repr() + ")"; }
  /// describe() with all children, indented, one a line.
  std::string str() const;

 protected:
  Module() = default;
  // Protected, so that a module is never copied without its derived part.
  Module(const Module& other) : training_(other.training_) {}
  Module& operator=(const Module& other) {
    training_ = other.training_;
    return *this;
  }
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  // To override for as_activation(), and both for can_apply(): forward_activated() is activation(forward(x)). They say yes
  // for their own class alone: one derived from it may have another forward().
  virtual Activation activation() const { return Activation::none; }
  virtual bool applies(Activation) const { return false; }
  virtual Tensor forward_activated(const Tensor& x, Activation activation);

 private:
  bool has_hooks() const { return !forward_pre_hooks_.empty() || !forward_hooks_.empty(); }
  Tensor call(Tensors inputs);
  // What f() returns. An Error gets to say that it came from this layer.
  template <class F>
  Tensor in_layer(F f);

  bool training_ = true;
  int next_hook_ = 0;
  std::vector<std::pair<int, ForwardPreHook>> forward_pre_hooks_;
  std::vector<std::pair<int, ForwardHook>> forward_hooks_;
};

/// True if the module is an M, and not of a class derived from it.
template <class M>
bool is_exactly(const Module& module) {
  return typeid(module) == typeid(M);
}

/// A table of all layers: name, output shape, number and dtype of parameters, with totals. Runs `model` once
/// in evaluation mode on zeros of the given shape, batch dimension included, and changes nothing.
std::string summary(Module& model, const Shape& input_shape);
/// The same on given inputs, for models that read integers or several tensors.
std::string summary_with(Module& model, const Tensors& inputs);

}  // namespace halfgrad::nn
