#pragma once
// The two walks over a module tree, on which everything in module.cpp, state_dict.cpp and summary.cpp is
// built.

#include <string>

#include "nn/module.h"

namespace halfgrad::nn {

/// Calls f(path, module) on root (path "") and all modules below it, parents first. A module that visit()
/// lists twice is met twice.
template <class F>
void each_module(Module& root, F&& f, const std::string& path = "") {
  struct Children : Visitor {
    F& f;
    std::string prefix;
    Children(F& f, std::string prefix) : f(f), prefix(std::move(prefix)) {}
    void module(const std::string& name, Module& child) override { each_module(child, f, prefix + name); }
  };
  f(path, root);
  Children children(f, path.empty() ? "" : path + ".");
  root.visit(children);
}

enum class Role { parameter, buffer };

/// Calls f(path, tensor, role, owner) on the defined parameters and buffers of root and of all modules below
/// it.
template <class F>
void each_tensor(Module& root, F&& f) {
  struct Own : Visitor {
    F& f;
    std::string prefix;
    Module& owner;
    Own(F& f, std::string prefix, Module& owner) : f(f), prefix(std::move(prefix)), owner(owner) {}
    void parameter(const std::string& name, Tensor& x) override {
      if (x.defined()) f(prefix + name, x, Role::parameter, owner);
    }
    void buffer(const std::string& name, Tensor& x) override {
      if (x.defined()) f(prefix + name, x, Role::buffer, owner);
    }
  };
  each_module(root, [&](const std::string& path, Module& module) {
    Own own(f, path.empty() ? "" : path + ".", module);
    module.visit(own);
  });
}

}  // namespace halfgrad::nn
