#pragma once
// The tape. Every op that is run on a tensor requiring a gradient records a Node: which tensors it read, and how to
// turn the gradient of its output into the gradients of its inputs. backward() walks the nodes from the output to the
// leaves.
//
// An op records itself right where it computes, so that a reader finds forward and gradient side by side:
//
//   Tensor exp(const Tensor& x) {
//     Tensor y = ...;
//     return record("exp", y, {x}, [](const Tensor& dy, const Tensor& y) { return Tensors{dy * y}; });
//   }

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace halfgrad {

/// A step of the graph, with exactly one output. Leaves that require a gradient have a node too: it adds to their grad.
struct Node : std::enable_shared_from_this<Node> {
  const char* name = "";
  std::uint64_t sequence = 0;                 ///< grows in the order of recording; backward runs from high to low
  std::vector<std::shared_ptr<Node>> inputs;  ///< one per input; null where no gradient is wanted
  std::vector<std::pair<int, Tensor::Hook>> hooks;
  // What the output looked like, to check its gradient against.
  Shape shape;
  DType dtype = f32;

  virtual ~Node();
  /// The inputs' gradients from the output's; undefined where input i wants none.
  virtual Tensors backward(const Tensor& dy) = 0;
  /// Drops what was saved for backward; a second backward then fails with an Error.
  virtual void release() = 0;
  virtual bool released() const = 0;
  /// The tensor to whose grad this node adds, when it is a leaf's; null for a step.
  virtual Tensor* leaf() { return nullptr; }
};

/// What an op reads, in braces: {x, weight, bias}. Undefined ones may be among them.
using OpInputs = std::initializer_list<std::reference_wrapper<const Tensor>>;

/// True when ops on x are recorded now.
bool needs_grad(const Tensor& x);

/// A tensor kept for backward. get() throws Error when its memory was changed in place since.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& x);
  const Tensor& get(const char* op) const;
  void reset() { tensor_ = Tensor(); }

 private:
  Tensor tensor_;
  Storage* storage_ = nullptr;
  std::uint32_t version_ = 0;
};

namespace detail {
template <class F>
struct LambdaNode;
/// What adds to x's gradient: its grad_fn, or for a leaf that requires one the node of the leaf; else null.
std::shared_ptr<Node> node_of(const Tensor& x);
/// Makes a new node y's grad_fn.
void attach(const std::shared_ptr<Node>& node, const char* name, const Tensor& y);
/// A handle to y's memory that does not keep y's node alive (a node must not own itself).
Tensor alias_without_graph(const Tensor& y);
/// y's alias with its node as grad_fn, so that gradients of gradients flow through the output.
Tensor alias_with_graph(const Tensor& y, Node& node);
}  // namespace detail

/// Makes y the output of a node with these inputs, when recording is on and one of them requires a gradient; else
/// returns y as it is. `gradient(dy)` or, when it needs the output, `gradient(dy, y)` returns one Tensor per input (an
/// undefined one where none is wanted). It may capture what it needs: input tensors through Saved, so that in-place
/// changes are caught; never y itself (that would be a cycle: take it as the second argument).
template <class F>
Tensor record(const char* name, Tensor y, OpInputs inputs, F gradient);
template <class F>
Tensor record(const char* name, Tensor y, const Tensors& inputs, F gradient);

/// Throws Error unless x may be changed in place now: not while recording, when it requires a gradient, and not when it
/// is expanded, so that several elements are the same memory.
void check_in_place(const Tensor& x, const char* op);

/// The sum of `grad` over the dimensions along which `shape` was broadcast: the gradient of an expand.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape);

// --- inside ----------------------------------------------------------------------------------------------------------

namespace detail {

template <class F>
struct LambdaNode final : Node {
  static constexpr bool wants_output = std::is_invocable_v<F&, const Tensor&, const Tensor&>;
  std::optional<F> gradient;
  Saved output;

  explicit LambdaNode(F f) : gradient(std::move(f)) {}
  Tensors backward(const Tensor& dy) override {
    if constexpr (wants_output) {
      return (*gradient)(dy, alias_with_graph(output.get(name), *this));
    } else {
      return (*gradient)(dy);
    }
  }
  void release() override {
    gradient.reset();
    output.reset();
  }
  bool released() const override { return !gradient; }
};

template <class F, class Inputs>
Tensor record_node(const char* name, Tensor y, const Inputs& inputs, F gradient) {
  bool wanted = false;
  for (const Tensor& x : inputs) wanted = wanted || needs_grad(x);
  if (!wanted) return y;
  auto node = std::make_shared<LambdaNode<F>>(std::move(gradient));
  if constexpr (LambdaNode<F>::wants_output) node->output = Saved(alias_without_graph(y));
  node->inputs.reserve(inputs.size());
  for (const Tensor& x : inputs) node->inputs.push_back(node_of(x));
  attach(node, name, y);
  return y;
}

}  // namespace detail

template <class F>
Tensor record(const char* name, Tensor y, OpInputs inputs, F gradient) {
  return detail::record_node(name, std::move(y), inputs, std::move(gradient));
}
template <class F>
Tensor record(const char* name, Tensor y, const Tensors& inputs, F gradient) {
  return detail::record_node(name, std::move(y), inputs, std::move(gradient));
}

}  // namespace halfgrad
