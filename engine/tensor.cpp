#include "engine/tensor.h"

#include <algorithm>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/random.h"

namespace halfgrad {

namespace {

// Strides describe memory in row-major order; the stride of a dimension of size 1 does not matter.
bool has_strides(const Shape& shape, const Strides& strides, const Shape& order) {
  std::int64_t expected = 1;
  for (int i = order.rank() - 1; i >= 0; --i) {
    const auto d = static_cast<std::size_t>(order[i]);
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

}  // namespace

// --- what it is ------------------------------------------------------------------------------------------------------

void detail::fail_undefined() { fail("tensor: an undefined tensor was used where a value was expected"); }

std::int64_t Tensor::size(std::int64_t dim) const {
  const int d = normalize_dim(dim, rank(), "size");
  return rank() == 0 ? 1 : shape()[d];
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (int d = rank() - 1; d >= 0; --d) {
    if (shape()[d] == 0) return true;
    if (shape()[d] != 1 && strides()[d] != expected) return false;
    expected *= shape()[d];
  }
  return true;
}

bool Tensor::is_channels_last() const { return rank() == 4 && has_strides(shape(), strides(), {0, 2, 3, 1}); }

void* Tensor::raw_data() const {
  const TensorImpl& impl = defined_impl();
  return static_cast<char*>(impl.storage->data()) + impl.offset * static_cast<std::int64_t>(size_of(impl.dtype));
}

View Tensor::view_of_data() const {
  if (!impl_) return {};
  return {raw_data(), impl_->dtype, impl_->shape, impl_->strides, device()};
}

void Tensor::require_host(DType expected, const char* op) const {
  check(device().is_cpu(), "{}: the tensor is on {}; copy it to the cpu first with to(Device::cpu())", op, device());
  check(dtype() == expected, "{}: the tensor is {}, asked for as {}; convert it first with to({})", op,
        name_of(dtype()), name_of(expected), name_of(expected));
}

std::uint32_t Tensor::version() const { return defined_impl().storage->version(); }
bool Tensor::shares_storage(const Tensor& other) const {
  return defined() && other.defined() && impl_->storage == other.impl_->storage;
}

// --- numbers and host memory -----------------------------------------------------------------------------------------

namespace {

Tensor make_literal(DType dtype, const void* value) {
  Tensor x = empty({}, dtype);
  std::copy_n(static_cast<const char*>(value), size_of(dtype), static_cast<char*>(x.raw_data()));
  x.impl()->literal = true;
  return x;
}

}  // namespace

Tensor Tensor::literal(double value) { return make_literal(f64, &value); }
Tensor Tensor::literal(std::int64_t value) { return make_literal(i64, &value); }

void Tensor::copy_to_host(void* out, DType dtype) const {
  const Tensor host = detach().to(Device::cpu());
  if (numel() == 0) return;
  backend_for(Device::cpu()).copy({out, dtype, shape(), contiguous_strides(shape())}, host.view_of_data());
}

// --- conversions -----------------------------------------------------------------------------------------------------

Tensor Tensor::clone() const {
  Tensor y = empty_like(*this);
  {
    NoGrad guard;
    y.copy_(*this);
  }
  return record("clone", y, {*this}, [](const Tensor& dy) { return Tensors{dy}; });
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  Tensor y = empty(shape(), dtype(), device());
  {
    NoGrad guard;
    y.copy_(*this);
  }
  return record("contiguous", y, {*this}, [](const Tensor& dy) { return Tensors{dy}; });
}

Tensor Tensor::channels_last() const {
  check(rank() == 4, "channels_last: the tensor has shape {}; expected rank 4, (N, C, H, W)", shape());
  if (is_channels_last()) return *this;
  const std::int64_t c = shape()[1], h = shape()[2], w = shape()[3];
  Tensor y = empty_strided(shape(), {h * w * c, 1, w * c, c}, dtype(), device());
  {
    NoGrad guard;
    y.copy_(*this);
  }
  return record("channels_last", y, {*this}, [](const Tensor& dy) { return Tensors{dy}; });
}

Tensor Tensor::to(DType target) const { return cast(*this, target); }

Tensor Tensor::to(Device target) const {
  if (device() == target) return *this;
  const Device source = device();
  if (!source.is_cpu() && !target.is_cpu()) return to(Device::cpu()).to(target);
  // Memory travels in one piece and keeps its order.
  const Tensor x = is_dense(shape(), strides()) ? detach() : detach().contiguous();
  Backend& to = backend_for(target);
  Tensor y = detail::empty_from(source.is_cpu() ? to.upload_allocator() : to.allocator(), x.shape(), x.strides(),
                                dtype(), target);
  const std::size_t bytes = static_cast<std::size_t>(numel()) * size_of(dtype());
  if (bytes > 0 && target.is_cpu()) backend_for(source).copy_to_host(y.raw_data(), x.raw_data(), bytes);
  if (bytes > 0 && source.is_cpu()) to.copy_from_host(y.raw_data(), x.raw_data(), bytes);
  return record("to", y, {*this}, [source](const Tensor& dy) { return Tensors{dy.to(source)}; });
}

Tensor Tensor::detach() const {
  defined_impl();
  return detail::alias_without_graph(*this);
}

// --- in place --------------------------------------------------------------------------------------------------------

namespace {

// The memory of `src` as it was before `dst` is written, when the two overlap without being the same elements.
Tensor without_overlap(const Tensor& dst, const Tensor& src) {
  const bool same_elements =
      dst.raw_data() == src.raw_data() && dst.strides() == src.strides() && dst.shape() == src.shape();
  return dst.shares_storage(src) && !same_elements ? src.clone() : src;
}

View broadcast_view(const Tensor& src, const Shape& target, const char* op) {
  check(broadcast_shapes(src.shape(), target, op) == target, "{}: a tensor of shape {} does not broadcast to shape {}",
        op, src.shape(), target);
  View view = src.view_of_data();
  view.strides = broadcast_strides(src.shape(), src.strides(), target);
  view.shape = target;
  return view;
}

}  // namespace

Tensor& Tensor::fill_(double value) {
  check_in_place(*this, "fill_");
  NoGrad guard;
  return copy_(Tensor(value));
}

Tensor& Tensor::copy_(const Tensor& source) {
  check_in_place(*this, "copy_");
  check(source.defined(), "copy_: the source is undefined");
  NoGrad guard;
  Tensor src =
      source.is_literal() || source.device() == device() ? without_overlap(*this, source) : source.to(device());
  const View from = broadcast_view(src, shape(), "copy_");
  impl_->storage->bump_version();
  if (numel() > 0) backend_for(device()).copy(view_of_data(), from);
  return *this;
}

Tensor& Tensor::mul_(const Tensor& other) {
  detail::multiply_in_place(*this, other);
  return *this;
}

Tensor& Tensor::div_(const Tensor& other) {
  detail::divide_in_place(*this, other);
  return *this;
}

Tensor& Tensor::add_(const Tensor& other, double alpha) {
  detail::add_in_place(*this, other, alpha);
  return *this;
}

Tensor& Tensor::clamp_(double min, double max) {
  check_in_place(*this, "clamp_");
  NoGrad guard;
  return copy_(clamp(*this, min, max));
}

namespace {
void fill_random(Tensor& x, Distribution kind, double a, double b, const char* op) {
  check_in_place(x, op);
  check(is_floating(x.dtype()), "{}: the tensor is {}; expected a float dtype", op, name_of(x.dtype()));
  Generator& generator = default_generator();
  const std::uint64_t offset = generator.reserve((static_cast<std::uint64_t>(x.numel()) + 3) / 4);
  x.impl()->storage->bump_version();
  if (x.numel() > 0) backend_for(x.device()).random(kind, x.view_of_data(), a, b, generator.seed(), offset);
}
}  // namespace

Tensor& Tensor::uniform_(double low, double high) {
  check(low <= high, "uniform_: the range [{}, {}) is empty; expected low <= high", low, high);
  fill_random(*this, Distribution::uniform, low, high, "uniform_");
  return *this;
}

Tensor& Tensor::normal_(double mean, double std) {
  check(std >= 0, "normal_: the deviation is {}; expected 0 or more", std);
  fill_random(*this, Distribution::normal, mean, std, "normal_");
  return *this;
}

void Tensor::set_data(const Tensor& other) {
  check(other.defined(), "set_data: the source is undefined");
  check(!requires_grad() || is_floating(other.dtype()), "set_data: a tensor that requires a gradient cannot become {}",
        name_of(other.dtype()));
  TensorImpl& impl = defined_impl();
  if (impl.grad_fn) fail("set_data: only leaves can be given new data; this tensor was made by {}", impl.grad_fn->name);
  if (impl.shape != other.shape() || impl.dtype != other.dtype() || device() != other.device()) impl.grad = nullptr;
  impl.accumulator.reset();  // it expects gradients of the old shape and dtype
  const TensorImpl& from = *other.impl();
  impl.storage = from.storage;
  impl.offset = from.offset;
  impl.shape = from.shape;
  impl.strides = from.strides;
  impl.dtype = from.dtype;
}

// --- autograd --------------------------------------------------------------------------------------------------------

bool Tensor::is_leaf() const { return !defined_impl().grad_fn; }
std::shared_ptr<Node> Tensor::grad_fn() const { return defined_impl().grad_fn; }
Tensor Tensor::grad() const { return Tensor(defined_impl().grad); }

Tensor& Tensor::requires_grad_(bool on) {
  TensorImpl& impl = defined_impl();
  check(!impl.grad_fn, "requires_grad_: only leaves can be switched; this tensor was made by {}",
        impl.grad_fn ? impl.grad_fn->name : "");
  check(!on || is_floating(impl.dtype),
        "requires_grad_: a tensor of dtype {} cannot have a gradient; convert it to a float dtype",
        name_of(impl.dtype));
  impl.requires_grad = on;
  return *this;
}

std::string Tensor::describe() const {
  return defined() ? fmt::format("{} {}", name_of(dtype()), shape()) : "undefined";
}

void Tensor::set_grad(const Tensor& grad) {
  TensorImpl& impl = defined_impl();
  check(!grad.defined() || (grad.shape() == impl.shape && grad.dtype() == impl.dtype),
        "set_grad: the gradient is {}; expected the dtype and shape of the tensor, {} {}", grad, name_of(impl.dtype),
        impl.shape);
  impl.grad = grad.shared_impl();
}

}  // namespace halfgrad
