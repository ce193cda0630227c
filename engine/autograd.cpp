#include "engine/autograd.h"

#include <memory_resource>
#include <queue>
#include <unordered_map>

#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace halfgrad {

namespace {

thread_local bool recording = true;

class RecordingGuard {
 public:
  explicit RecordingGuard(bool on) : before_(recording) { recording = on; }
  ~RecordingGuard() { recording = before_; }

 private:
  bool before_;
};

std::uint64_t next_sequence() {
  thread_local std::uint64_t counter = 0;
  return ++counter;
}

// Several of its elements are the same memory: an expanded tensor.
bool repeats_memory(const Tensor& x) {
  for (std::size_t d = 0; d < x.shape().size(); ++d)
    if (x.shape()[d] > 1 && x.strides()[d] == 0) return true;
  return false;
}

// Nobody else can see this tensor's memory, so it may be changed or kept without a copy.
bool is_only_owner(const Tensor& x) {
  return x.shared_impl().use_count() == 1 && x.impl()->storage.use_count() == 1 && !repeats_memory(x);
}

// The end of the graph: adds what arrives to the leaf's grad.
struct AccumulateGrad final : Node {
  Tensor tensor;

  Tensor* leaf() override { return &tensor; }
  Tensors backward(const Tensor& dy) override {
    Tensor total = tensor.grad();
    if (recording) {  // create_graph: the gradient itself stays part of the graph
      tensor.set_grad(total.defined() ? total + dy : dy);
    } else if (total.defined()) {
      total.add_(dy);
    } else if (is_only_owner(dy) && dy.strides() == tensor.strides()) {
      tensor.set_grad(dy);
    } else {
      const Strides strides = repeats_memory(tensor) ? contiguous_strides(tensor.shape()) : tensor.strides();
      Tensor copy = empty_strided(tensor.shape(), strides, tensor.dtype(), tensor.device());
      copy.copy_(dy);
      tensor.set_grad(copy);
    }
    return {};
  }
  void release() override {}  // a leaf's node serves every graph that the leaf is part of
  bool released() const override { return false; }
};

}  // namespace

std::shared_ptr<Node> detail::node_of(const Tensor& x) {
  if (!x.defined()) return nullptr;
  TensorImpl& impl = *x.impl();
  if (impl.grad_fn) return impl.grad_fn;
  if (!impl.requires_grad) return nullptr;
  if (auto node = impl.accumulator.lock()) return node;
  auto node = std::make_shared<AccumulateGrad>();
  node->name = "leaf";
  node->sequence = 0;  // after every step of the graph
  node->tensor = x;
  node->shape = x.shape();
  node->dtype = x.dtype();
  impl.accumulator = node;
  return node;
}

namespace {

using detail::node_of;

void check_gradient(const Tensor& grad, const Node& target, const char* from) {
  check(grad.shape() == target.shape && grad.dtype() == target.dtype,
        "backward: {} gave its input '{}' a gradient of shape {} and dtype {}; expected {} and {}", from, target.name,
        grad.shape(), name_of(grad.dtype()), target.shape, name_of(target.dtype));
}

Tensor run_hooks(const std::vector<std::pair<int, Tensor::Hook>>& hooks, Tensor grad, const Node& node) {
  for (const auto& [id, hook] : hooks) {
    Tensor replaced = hook(grad);
    if (!replaced.defined()) continue;
    check_gradient(replaced, node, "a hook");
    grad = std::move(replaced);
  }
  return grad;
}

// One backward pass. `captures` are the nodes whose gradients are wanted as results; empty: accumulate in all leaves.
class Pass {
 public:
  Pass(const Tensor& output, const Tensor& gradient, const Tensors& wanted, bool retain_graph, bool create_graph)
      : capturing_(!wanted.empty()), retain_(retain_graph || create_graph), create_graph_(create_graph) {
    root_ = node_of(output);
    for (const Tensor& x : wanted) {
      captures_.push_back(node_of(x));
      check(captures_.back() != nullptr, "grad: an input of shape {} does not require a gradient", x.shape());
    }
    results_.resize(wanted.size());
    plan();
    steps_.front().gradient = gradient;
  }

  Tensors run() {
    RecordingGuard guard(create_graph_);
    std::priority_queue<Ready> ready;
    const auto push = [&](std::size_t position) { ready.push({steps_[position].node->sequence, position}); };
    if (steps_.front().needed) push(0);
    while (!ready.empty()) {
      Step& step = steps_[ready.top().position];
      ready.pop();
      Tensors grads = visit(step);
      for (std::size_t i = 0; i < step.node->inputs.size(); ++i) {
        Step* input = input_of(step, i);
        if (!input || !input->needed) continue;
        if (i < grads.size() && grads[i].defined()) {
          check_gradient(grads[i], *input->node, step.node->name);
          accumulate(input->gradient, std::move(grads[i]));
        }
        if (--input->pending == 0) push(static_cast<std::size_t>(input - steps_.data()));
      }
    }
    return std::move(results_);
  }

 private:
  /// What the pass has to do with a node.
  struct Step {
    Node* node;
    std::size_t edges;  // where the positions of the node's inputs begin in edges_
    Tensor gradient = {};
    int pending = 0;      // how many of the steps that read this one's output have not run yet
    bool needed = false;  // a wanted gradient lies here or further down
  };
  struct Ready {
    std::uint64_t sequence;
    std::size_t position;
    bool operator<(const Ready& other) const { return sequence < other.sequence; }
  };
  static constexpr std::size_t kNone = SIZE_MAX;

  Step* input_of(const Step& step, std::size_t i) {
    const std::size_t position = edges_[step.edges + i];
    return position == kNone ? nullptr : &steps_[position];
  }

  // The node's position among the steps, where it is put when it is not there yet.
  std::size_t find(Node* node) {
    const auto [found, is_new] = positions_.try_emplace(node, steps_.size());
    if (is_new) {
      steps_.push_back({.node = node, .edges = edges_.size()});
      edges_.resize(edges_.size() + node->inputs.size(), kNone);
    }
    return found->second;
  }

  // Finds the nodes below the root with an explicit stack (a graph may be 100,000 nodes deep), marks those that lead to
  // a wanted gradient, and counts for each how many gradients it waits for.
  void plan() {
    std::vector<std::size_t> order;  // inputs before the nodes that read them
    std::vector<std::pair<std::size_t, std::size_t>> stack{{find(root_.get()), 0}};
    while (!stack.empty()) {
      auto& [position, next] = stack.back();
      const Step& step = steps_[position];
      if (next == step.node->inputs.size()) {
        order.push_back(position);
        stack.pop_back();
        continue;
      }
      const std::size_t edge = step.edges + next;
      Node* input = step.node->inputs[next++].get();
      if (!input) continue;
      const std::size_t known = steps_.size();
      edges_[edge] = find(input);
      if (steps_.size() > known) stack.emplace_back(known, 0);
    }
    for (const auto& capture : captures_)
      if (const auto found = positions_.find(capture.get()); found != positions_.end())
        steps_[found->second].needed = true;
    for (std::size_t position : order) {
      Step& step = steps_[position];
      if (!capturing_) step.needed = step.node->leaf() != nullptr;
      for (std::size_t i = 0; i < step.node->inputs.size(); ++i)
        if (const Step* input = input_of(step, i); input && input->needed) step.needed = true;
      for (std::size_t i = 0; step.needed && i < step.node->inputs.size(); ++i)
        if (Step* input = input_of(step, i)) ++input->pending;
    }
  }

  Tensors visit(Step& step) {
    Tensor dy = std::move(step.gradient);
    if (!dy.defined()) return {};  // every path to here was cut
    Node& node = *step.node;
    Tensor* leaf = node.leaf();
    const auto& hooks = leaf ? leaf->impl()->hooks : node.hooks;
    if (!hooks.empty()) dy = run_hooks(hooks, std::move(dy), node);
    for (std::size_t i = 0; i < captures_.size(); ++i)
      if (captures_[i].get() == &node) results_[i] = dy;
    if (leaf && capturing_) return {};
    bool goes_on = leaf != nullptr;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Step* input = input_of(step, i);
      goes_on = goes_on || (input && input->needed);
    }
    if (!goes_on) return {};
    check(!node.released(),
          "backward: the graph below '{}' was freed by an earlier backward; pass retain_graph = true to that one",
          node.name);
    Tensors grads = node.backward(dy);
    if (!retain_) node.release();
    return grads;
  }

  void accumulate(Tensor& sum, Tensor grad) {
    if (!sum.defined())
      sum = std::move(grad);
    else if (!create_graph_ && is_only_owner(sum))
      sum.add_(grad);
    else
      sum = sum + grad;
  }

  bool capturing_;
  bool retain_;
  bool create_graph_;
  std::shared_ptr<Node> root_;
  std::vector<std::shared_ptr<Node>> captures_;
  Tensors results_;
  std::vector<Step> steps_;  // the root's first
  std::vector<std::size_t> edges_;
  // The map takes its memory from here instead of asking for each node's, and gives all of it back at the end.
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<const Node*, std::size_t> positions_{&memory_};
};

Tensor root_gradient(const Tensor& output, const Tensor& gradient) {
  check(output.defined(), "backward: the tensor is undefined");
  check(output.requires_grad(),
        "backward: the tensor of shape {} does not require a gradient, nor does anything it was "
        "made from; call requires_grad_() on a leaf first",
        output.shape());
  if (gradient.defined()) {
    check(gradient.shape() == output.shape(), "backward: the gradient has shape {}; expected that of the tensor, {}",
          gradient.shape(), output.shape());
    return gradient.to(output.dtype());
  }
  check(output.numel() == 1, "backward: the tensor has shape {}; a gradient must be given unless it has one element",
        output.shape());
  return ones_like(output);
}

}  // namespace

Node::~Node() {
  // Destroying a node may destroy its inputs, and so on down the whole graph: 100,000 nested destructors. Instead each
  // hands its inputs to a queue, which the outermost one empties.
  thread_local std::vector<std::shared_ptr<Node>> doomed;
  thread_local bool draining = false;
  for (auto& input : inputs)
    if (input) doomed.push_back(std::move(input));
  if (draining) return;
  draining = true;
  while (!doomed.empty()) {
    std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
  }
  draining = false;
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }

bool needs_grad(const Tensor& x) { return recording && x.defined() && x.requires_grad(); }

void check_in_place(const Tensor& x, const char* op) {
  check(!needs_grad(x),
        "{}: a tensor of shape {} that requires a gradient cannot be changed in place while gradients are "
        "recorded; do it under NoGrad or use the op that returns a new tensor",
        op, x.shape());
  check(!repeats_memory(x),
        "{}: several elements of the tensor of shape {} and strides {} are the same memory, because it was "
        "expanded; clone() it before changing it in place",
        op, x.shape(), x.strides());
}

Saved::Saved(const Tensor& x) : tensor_(x) {
  if (!x.defined()) return;
  storage_ = x.impl()->storage.get();
  version_ = x.version();
}

const Tensor& Saved::get(const char* op) const {
  if (tensor_.defined())
    check(tensor_.impl()->storage.get() == storage_ && tensor_.version() == version_,
          "backward of {}: a tensor of shape {} that it needs was changed in place after the forward (version {}, "
          "saved at "
          "{}); clone it before the change",
          op, tensor_.shape(), tensor_.version(), version_);
  return tensor_;
}

namespace detail {

void attach(const std::shared_ptr<Node>& node, const char* name, const Tensor& y) {
  node->name = name;
  node->sequence = next_sequence();
  node->shape = y.shape();
  node->dtype = y.dtype();
  y.impl()->grad_fn = node;
}

Tensor alias_without_graph(const Tensor& y) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = y.impl()->storage;
  impl->offset = y.impl()->offset;
  impl->shape = y.shape();
  impl->strides = y.strides();
  impl->dtype = y.dtype();
  return Tensor(std::move(impl));
}

Tensor alias_with_graph(const Tensor& y, Node& node) {
  if (!recording) return y;
  Tensor alias = alias_without_graph(y);
  alias.impl()->grad_fn = node.shared_from_this();
  return alias;
}

}  // namespace detail

Tensor sum_to_shape(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const int lead = grad.rank() - shape.rank();
  Shape dims;
  for (int d = 0; d < grad.rank(); ++d)
    if (d < lead || (shape[d - lead] == 1 && grad.shape()[d] != 1)) dims.push_back(d);
  if (dims.rank() == lead) return sum(grad, dims);
  return sum(grad, dims, /*keepdim=*/true).reshape(shape);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  Pass(*this, root_gradient(*this, gradient), {}, retain_graph, create_graph).run();
}

Tensors grad(const Tensor& output, const Tensors& inputs, const Tensor& gradient, bool retain_graph,
             bool create_graph) {
  check(!inputs.empty(), "grad: no inputs were given; expected at least one tensor");
  return Pass(output, root_gradient(output, gradient), inputs, retain_graph, create_graph).run();
}

int Tensor::register_hook(Hook hook) const {
  check(requires_grad(), "register_hook: the tensor of shape {} does not require a gradient", shape());
  thread_local int next_id = 0;
  auto& hooks = impl_->grad_fn ? impl_->grad_fn->hooks : impl_->hooks;
  hooks.emplace_back(++next_id, std::move(hook));
  return next_id;
}

void Tensor::remove_hook(int id) const {
  auto& hooks = impl_->grad_fn ? impl_->grad_fn->hooks : impl_->hooks;
  std::erase_if(hooks, [&](const auto& entry) { return entry.first == id; });
}

}  // namespace halfgrad
