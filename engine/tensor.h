#pragma once
// Tensor: a handle to a strided view of Storage, and what autograd keeps with it.
//
// Copying a Tensor copies the handle: both name the same memory, gradient and place in the graph, as in PyTorch. Math
// lives in free functions (engine/ops/); the members here tell what a tensor is, make views of it, convert it, change
// it in place and run backward.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/backend.h"
#include "engine/device.h"
#include "engine/dtype.h"
#include "engine/error.h"
#include "engine/shape.h"
#include "engine/storage.h"

namespace halfgrad {

class Tensor;
struct Node;        // one step of the graph, engine/autograd.h
struct TensorImpl;  // what a handle points to, at the end of this file
using Tensors = std::vector<Tensor>;

template <class T>
concept Number = std::is_arithmetic_v<T> || std::is_same_v<T, half>;

class Tensor {
 public:
  /// No tensor at all: defined() is false.
  Tensor() = default;
  /// A number where a tensor is expected (`2 * x`, `maximum(x, 0)`): rank 0; it never changes the other's dtype, except
  /// that a fraction turns integers into f32.
  template <Number T>
  Tensor(T value)
      : Tensor(literal(static_cast<std::conditional_t<std::is_integral_v<T>, std::int64_t, double>>(value))) {}
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }

  // --- what it is ---
  const Shape& shape() const;
  const Strides& strides() const;
  int rank() const { return shape().rank(); }
  /// Negative dimensions count from the end.
  std::int64_t size(std::int64_t dim) const;
  std::int64_t numel() const;
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;
  /// Row-major in (N, H, W, C) order: the memory layout that convolutions run on. Rank 4 only.
  bool is_channels_last() const;
  /// True for a number that was written where a tensor is expected.
  bool is_literal() const;
  View view_of_data() const;  ///< for the seam
  /// First element, typed: throws Error when T is not the dtype or the memory is not the host's.
  template <class T>
  T* data() const {
    require_host(dtype_of<T>, "data");
    return static_cast<T*>(raw_data());
  }
  void* raw_data() const;

  // --- values on the host ---
  /// The only element of a one-element tensor, converted to T (any of the C++ types of the dtypes).
  template <class T = double>
  T item() const {
    check(numel() == 1, "item: the tensor has shape {}; expected exactly one element", shape());
    T value{};
    copy_to_host(&value, dtype_of<T>);
    return value;
  }
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const {
    if constexpr (std::is_same_v<T, bool>) {
      const std::vector<std::uint8_t> bytes = to_vector<std::uint8_t>();
      return {bytes.begin(), bytes.end()};
    } else {
      std::vector<T> values(static_cast<std::size_t>(numel()));
      copy_to_host(values.data(), dtype_of<T>);
      return values;
    }
  }
  /// Printed as nested brackets; long dimensions are shortened.
  std::string str() const;
  /// Dtype and shape, "f32 [2, 3]", or "undefined". Errors show tensors in this way.
  std::string describe() const;

  // --- views: share storage with this tensor ---
  /// One size may be -1 and is inferred. `view` throws Error when a copy would be needed, `reshape` makes it.
  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor permute(const Shape& dims) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  /// The transpose of a matrix (rank 2 or less).
  Tensor t() const;
  /// x[start:stop:step] along dim; negative bounds count from the end, out-of-range bounds are clamped; step >= 1.
  Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t stop = INT64_MAX, std::int64_t step = 1) const;
  Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
  /// The position `index` of `dim`, which disappears.
  Tensor select(std::int64_t dim, std::int64_t index) const;
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  /// Broadcasts dimensions of size 1 (stride 0); -1 keeps a size.
  Tensor expand(const Shape& shape) const;
  Tensor squeeze() const;
  Tensor squeeze(std::int64_t dim) const;
  Tensor unsqueeze(std::int64_t dim) const;
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1) const;

  // --- copies and conversions ---
  Tensor clone() const;
  /// This tensor when it is row-major already, else a row-major copy.
  Tensor contiguous() const;
  /// This tensor in channels-last memory (rank 4); the shape stays (N, C, H, W).
  Tensor channels_last() const;
  /// Converted with one rounding; this very tensor when nothing changes.
  Tensor to(DType dtype) const;
  /// Copied to the device, in the same order of memory; this very tensor when it is there already. The call returns when
  /// the copy is complete.
  Tensor to(Device device) const;

  // --- in place (bumps the version; an Error when the graph needs the tensor differentiated through) ---
  Tensor& fill_(double value);
  Tensor& zero_() { return fill_(0); }
  /// Broadcasts and converts `src` into this tensor.
  Tensor& copy_(const Tensor& src);
  /// this += alpha * other
  Tensor& add_(const Tensor& other, double alpha = 1);
  Tensor& sub_(const Tensor& other) { return add_(other, -1); }
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& clamp_(double min, double max);
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double std = 1);
  /// Gives this handle, and every other handle to the same tensor, the contents, shape and dtype of `other`
  /// (`param.data = other` in PyTorch). The gradient is dropped when shape, dtype or device changes.
  void set_data(const Tensor& other);

  // --- autograd ---
  bool requires_grad() const;
  /// Only leaves of float dtype can be told to require a gradient.
  Tensor& requires_grad_(bool on = true);
  bool is_leaf() const;
  /// The accumulated gradient of a leaf (undefined before the first backward). Same shape and dtype as the leaf.
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  std::shared_ptr<Node> grad_fn() const;
  /// The same memory, outside of the graph.
  Tensor detach() const;
  /// Accumulates the gradient of this tensor in every leaf it depends on. `gradient` defaults to 1 for a one-element
  /// tensor and must be given otherwise. The graph is freed unless retain_graph; create_graph records the gradient
  /// computation itself, so that it can be differentiated again (and implies retain_graph); the gradient in a leaf and
  /// the leaf then keep each other alive until set_grad({}), as in PyTorch, so prefer grad().
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  using Hook = std::function<Tensor(const Tensor&)>;
  /// Called with the whole gradient of this tensor during backward; a defined result replaces it. Returns an id for
  /// remove_hook.
  int register_hook(Hook hook) const;
  void remove_hook(int id) const;

  std::uint32_t version() const;
  /// Two handles of the same tensor.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  bool shares_storage(const Tensor& other) const;
  TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<TensorImpl>& shared_impl() const { return impl_; }

 private:
  static Tensor literal(double value);
  static Tensor literal(std::int64_t value);
  void require_host(DType expected, const char* op) const;
  void copy_to_host(void* out, DType dtype) const;
  TensorImpl& defined_impl() const;  // Error when there is none

  std::shared_ptr<TensorImpl> impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);

// --- factories -------------------------------------------------------------------------------------------------------

/// Uninitialised.
Tensor empty(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
/// Uninitialised, with the given strides over a storage just large enough.
Tensor empty_strided(const Shape& shape, const Strides& strides, DType dtype = f32, Device device = Device::cpu());
namespace detail {
/// The same with memory of this allocator of the device.
Tensor empty_from(Allocator& allocator, const Shape& shape, const Strides& strides, DType dtype, Device device);
}  // namespace detail
Tensor zeros(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
Tensor ones(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
Tensor full(const Shape& shape, double value, DType dtype = f32, Device device = Device::cpu());
/// start, start + step, ... below (above, for a negative step) stop.
Tensor arange(double start, double stop, double step = 1, DType dtype = f32, Device device = Device::cpu());
/// 0, 1, ..., n - 1 as i64.
Tensor arange(std::int64_t n, DType dtype = i64, Device device = Device::cpu());
/// `steps` values from start to stop, both included.
Tensor linspace(double start, double stop, std::int64_t steps, DType dtype = f32, Device device = Device::cpu());
Tensor eye(std::int64_t rows, std::int64_t cols = -1, DType dtype = f32, Device device = Device::cpu());
/// Uniform in [0, 1), from the default generator.
Tensor rand(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
/// Standard normal, from the default generator.
Tensor randn(const Shape& shape, DType dtype = f32, Device device = Device::cpu());
/// Uniform integers in [low, high), i64.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Device device = Device::cpu());

/// With the shape, dtype and device of x.
Tensor empty_like(const Tensor& x);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);

/// A copy of `n` host values (row-major) of the given dtype.
Tensor from_host(const void* values, std::int64_t n, DType dtype, const Shape& shape, Device device = Device::cpu());

/// A copy of `values` (row-major) with the given shape and T's dtype (vector<bool> included).
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device = Device::cpu()) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<std::uint8_t> bytes(values.begin(), values.end());
    return from_host(bytes.data(), static_cast<std::int64_t>(bytes.size()), boolean, shape, device);
  } else {
    return from_host(values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>, shape, device);
  }
}
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, {static_cast<std::int64_t>(values.size())});
}

/// A number or a list of such, nested to any depth: the argument of `tensor({{1, 2}, {3, 4}})`.
class NestedList {
 public:
  template <Number T>
  NestedList(T value) : value_(static_cast<double>(value)), is_number_(true) {}
  NestedList(std::initializer_list<NestedList> items) : items_(items) {}

 private:
  friend Tensor tensor(std::initializer_list<NestedList> values, DType dtype, Device device);
  void collect(std::size_t depth, Shape& shape, std::vector<double>& out) const;
  double value_ = 0;
  bool is_number_ = false;
  std::vector<NestedList> items_;
};
/// From nested lists, which must be rectangular: `tensor({{1, 2}, {3, 4}}, f16)`.
Tensor tensor(std::initializer_list<NestedList> values, DType dtype = f32, Device device = Device::cpu());

// --- autograd switches and free functions ----------------------------------------------------------------------------

/// Nothing is recorded while one lives, on this thread: `{ NoGrad guard; w.sub_(lr * w.grad()); }`.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool grad_enabled();

/// Gradients of `output` with respect to `inputs`, which are returned rather than accumulated. An input that the output
/// does not depend on gives an undefined tensor.
Tensors grad(const Tensor& output, const Tensors& inputs, const Tensor& gradient = {}, bool retain_graph = false,
             bool create_graph = false);

// --- inside ----------------------------------------------------------------------------------------------------------

struct TensorImpl {
  StoragePtr storage;
  std::int64_t offset = 0;  // elements from the start of storage
  Shape shape;
  Strides strides;
  DType dtype = f32;
  bool literal = false;
  bool requires_grad = false;                       // of a leaf; a tensor with a grad_fn requires one anyway
  std::shared_ptr<Node> grad_fn;                    // the step that made this tensor; null for a leaf
  std::weak_ptr<Node> accumulator;                  // of a leaf: the node that adds to `grad`, while a graph holds it
  std::shared_ptr<TensorImpl> grad;                 // of a leaf
  std::vector<std::pair<int, Tensor::Hook>> hooks;  // of a leaf; a made tensor's live in its grad_fn
};

namespace detail {
[[noreturn]] void fail_undefined();
}

// Every op asks these several times.
inline TensorImpl& Tensor::defined_impl() const {
  if (!impl_) [[unlikely]]
    detail::fail_undefined();
  return *impl_;
}
inline const Shape& Tensor::shape() const { return defined_impl().shape; }
inline const Strides& Tensor::strides() const { return defined_impl().strides; }
inline std::int64_t Tensor::numel() const { return shape().numel(); }
inline DType Tensor::dtype() const { return defined_impl().dtype; }
inline Device Tensor::device() const { return defined_impl().storage->device(); }
inline bool Tensor::is_literal() const { return defined_impl().literal; }
inline bool Tensor::requires_grad() const { return defined_impl().requires_grad || impl_->grad_fn; }

}  // namespace halfgrad

template <>
struct fmt::formatter<halfgrad::Tensor> : halfgrad::TextFormatter {
  template <class Context>
  auto format(const halfgrad::Tensor& x, Context& context) const {
    return write(x.describe(), context);
  }
};
