#pragma once
// Modules made of other modules: Sequential, Residual; and the layers that only rearrange: Identity, Flatten,
// Lambda.

#include <concepts>
#include <memory>

#include "nn/module.h"

namespace halfgrad::nn {

/// A module of any type, held by value: copying it copies the module.
class AnyModule {
 public:
  template <std::derived_from<Module> M>
  AnyModule(M module) : held_(std::make_unique<M>(std::move(module))), copy_(copy<M>) {}
  AnyModule(const AnyModule& other) : held_(other.copy_(*other.held_)), copy_(other.copy_) {}
  AnyModule(AnyModule&&) = default;
  AnyModule& operator=(AnyModule other) {
    held_ = std::move(other.held_);
    copy_ = other.copy_;
    return *this;
  }

  Module& operator*() const { return *held_; }
  Module* operator->() const { return held_.get(); }

 private:
  template <class M>
  static std::unique_ptr<Module> copy(const Module& module) {
    if constexpr (std::copy_constructible<M>) {
      return std::make_unique<M>(static_cast<const M&>(module));
    } else {
      fail("{}: cannot be copied; move it instead", module.name());
    }
  }

  std::unique_ptr<Module> held_;
  std::unique_ptr<Module> (*copy_)(const Module&);
};

class Sequential;
template <class L, class M = Module>
concept Layer = std::derived_from<std::remove_cvref_t<L>, M>;
// One Sequential alone is copied or moved, not wrapped.
template <class... Layers>
concept LayerList = (Layer<Layers> && ...) && (sizeof...(Layers) > 1 || !(Layer<Layers, Sequential> && ...));

/// Runs its layers one after the other, a layer and the ReLU behind it as one op where it can. Layers are named "0", "1",
/// ...; of several inputs all go to the first layer.
class Sequential : public Module {
 public:
  Sequential() = default;
  /// `Sequential(Linear(784, 10), ReLU())`: takes the layers by value. In what order the layers are made, and so which
  /// random numbers each is initialised with, is up to the compiler (g++ makes the last one first); written with
  /// braces, `Sequential{...}`, it is the order in which they stand.
  template <class... Layers>
  requires LayerList<Layers...>
  explicit Sequential(Layers&&... layers) {
    layers_.reserve(sizeof...(layers));
    (layers_.emplace_back(std::forward<Layers>(layers)), ...);
  }

  Sequential& add(AnyModule layer) {
    layers_.push_back(std::move(layer));
    return *this;
  }
  std::size_t size() const { return layers_.size(); }
  Module& operator[](std::size_t i) const;
  /// Layer i, which must be an M: `net.get<Linear>(0).weight`.
  template <std::derived_from<Module> M>
  M& get(std::size_t i) const {
    auto* layer = dynamic_cast<M*>(&(*this)[i]);
    check(layer != nullptr, "Sequential: layer {} is {}, not the type asked for", i, (*this)[i].describe());
    return *layer;
  }

  Tensor forward(const Tensor& x) override { return run(x, 0, Activation::none); }
  Tensor forward_many(const Tensors& inputs) override;
  void visit(Visitor& v) override;

 protected:
  bool applies(Activation activation) const override;
  Tensor forward_activated(const Tensor& x, Activation activation) override { return run(x, 0, activation); }

 private:
  // The layers from number `first` on, and then the activation.
  Tensor run(Tensor x, std::size_t first, Activation activation);

  std::vector<AnyModule> layers_;
};

/// x itself.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

/// main(x) + shortcut(x), both of one shape (He et al., 2016).
class Residual : public Module {
 public:
  explicit Residual(AnyModule main, AnyModule shortcut = Identity())
      : main_(std::move(main)), shortcut_(std::move(shortcut)) {}
  Module& main() const { return *main_; }
  Module& shortcut() const { return *shortcut_; }
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;

 private:
  AnyModule main_, shortcut_;
};

/// Joins the dimensions from start_dim to end_dim, by default all but the batch.
class Flatten : public Module {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  Tensor forward(const Tensor& x) override { return x.flatten(start_dim, end_dim); }

  std::int64_t start_dim, end_dim;
};

/// Any function: `Lambda([](const Tensor& x) { return x.reshape({-1, 1, 28, 28}); })`.
class Lambda : public Module {
 public:
  explicit Lambda(std::function<Tensor(const Tensor&)> function) : function_(std::move(function)) {}
  Tensor forward(const Tensor& x) override { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

}  // namespace halfgrad::nn
