#include <cmath>

#include "engine/autograd.h"
#include "engine/random.h"
#include "engine/tensor.h"

namespace halfgrad {

Tensor empty_strided(const Shape& shape, const Strides& strides, DType dtype, Device device) {
  return detail::empty_from(backend_for(device).allocator(), shape, strides, dtype, device);
}

Tensor detail::empty_from(Allocator& allocator, const Shape& shape, const Strides& strides, DType dtype,
                          Device device) {
  check(shape.size() == strides.size(), "empty_strided: {} sizes but {} strides", shape.size(), strides.size());
  std::int64_t last = 0;  // offset of the last element
  bool is_empty = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    check(shape[d] >= 0 && strides[d] >= 0, "empty: the shape {} or the strides {} have a negative entry", shape,
          strides);
    is_empty = is_empty || shape[d] == 0;
    std::int64_t extent = 0;
    check(shape[d] == 0 || (!__builtin_mul_overflow(shape[d] - 1, strides[d], &extent) &&
                            !__builtin_add_overflow(last, extent, &last) && last < INT64_MAX / 16),
          "empty: the shape {} asks for more memory than there is", shape);
  }
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = dtype;
  impl->storage =
      std::make_shared<Storage>(allocator, device, is_empty ? 0 : static_cast<std::size_t>(last + 1) * size_of(dtype));
  return Tensor(std::move(impl));
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  std::int64_t n = 1;
  bool overflow = false;
  for (std::int64_t size : shape) overflow = overflow || (size > 0 && __builtin_mul_overflow(n, size, &n));
  check(!overflow, "empty: the shape {} asks for more memory than there is", shape);
  return empty_strided(shape, contiguous_strides(shape), dtype, device);
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x = empty(shape, dtype, device);
  x.fill_(value);
  return x;
}
Tensor zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }
Tensor ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }

namespace {

// Values computed on the host in double, rounded once to the dtype.
template <class F>
Tensor generate(std::int64_t n, const Shape& shape, DType dtype, Device device, F&& value) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = value(i);
  return from_vector(values, shape).to(dtype).to(device);
}

}  // namespace

Tensor arange(double start, double stop, double step, DType dtype, Device device) {
  check(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
        "arange: start {}, stop {} and step {}; expected finite numbers and a step other than 0", start, stop, step);
  const double count = std::ceil((stop - start) / step);
  check(count < 1e15, "arange: {} values from {} to {} are too many", count, start, stop);
  const std::int64_t n = count > 0 ? static_cast<std::int64_t>(count) : 0;
  return generate(n, {n}, dtype, device, [&](std::int64_t i) { return start + static_cast<double>(i) * step; });
}

Tensor arange(std::int64_t n, DType dtype, Device device) {
  return arange(0.0, static_cast<double>(n), 1.0, dtype, device);
}

Tensor linspace(double start, double stop, std::int64_t steps, DType dtype, Device device) {
  check(steps >= 0, "linspace: {} steps; expected 0 or more", steps);
  return generate(steps, {steps}, dtype, device, [&](std::int64_t i) {
    if (i == steps - 1 && steps > 1) return stop;  // exactly
    return start + (stop - start) * static_cast<double>(i) / static_cast<double>(std::max<std::int64_t>(steps - 1, 1));
  });
}

Tensor eye(std::int64_t rows, std::int64_t cols, DType dtype, Device device) {
  if (cols < 0) cols = rows;
  check(rows >= 0, "eye: {} rows; expected 0 or more", rows);
  return generate(rows * cols, {rows, cols}, dtype, device,
                  [&](std::int64_t i) { return i / cols == i % cols ? 1.0 : 0.0; });
}

Tensor rand(const Shape& shape, DType dtype, Device device) { return empty(shape, dtype, device).uniform_(); }
Tensor randn(const Shape& shape, DType dtype, Device device) { return empty(shape, dtype, device).normal_(); }

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Device device) {
  check(low < high, "randint: the range [{}, {}) is empty; expected low < high", low, high);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  for (auto& v : values)
    v = low + static_cast<std::int64_t>(default_generator().next_below(static_cast<std::uint64_t>(high - low)));
  return from_vector(values, shape).to(device);
}

Tensor empty_like(const Tensor& x) {
  // Keeps a dense memory order such as channels-last; anything else (broadcast, sliced) becomes row-major.
  return is_dense(x.shape(), x.strides()) ? empty_strided(x.shape(), x.strides(), x.dtype(), x.device())
                                          : empty(x.shape(), x.dtype(), x.device());
}
Tensor full_like(const Tensor& x, double value) {
  Tensor y = empty_like(x);
  y.fill_(value);
  return y;
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }
Tensor rand_like(const Tensor& x) { return empty_like(x).uniform_(); }
Tensor randn_like(const Tensor& x) { return empty_like(x).normal_(); }

Tensor from_host(const void* values, std::int64_t n, DType dtype, const Shape& shape, Device device) {
  check(shape.numel() == n, "from_vector: {} values do not fill the shape {}", n, shape);
  Tensor x = empty(shape, dtype, device);
  if (n > 0) backend_for(device).copy_from_host(x.raw_data(), values, static_cast<std::size_t>(n) * size_of(dtype));
  return x;
}

void NestedList::collect(std::size_t depth, Shape& shape, std::vector<double>& out) const {
  if (is_number_) {
    check(depth == shape.size(), "tensor: the nested list mixes numbers and lists at depth {}", depth);
    out.push_back(value_);
    return;
  }
  check(depth < shape.size() && static_cast<std::int64_t>(items_.size()) == shape[depth],
        "tensor: the nested list is not rectangular: a list of {} items at depth {} where {} are expected",
        items_.size(), depth, depth < shape.size() ? shape[depth] : 0);
  for (const NestedList& item : items_) item.collect(depth + 1, shape, out);
}

Tensor tensor(std::initializer_list<NestedList> values, DType dtype, Device device) {
  const NestedList root(values);
  Shape shape;
  for (const NestedList* level = &root; !level->is_number_;) {
    shape.push_back(static_cast<std::int64_t>(level->items_.size()));
    if (level->items_.empty()) break;
    level = &level->items_.front();
  }
  std::vector<double> numbers;
  root.collect(0, shape, numbers);
  return from_vector(numbers, shape).to(dtype).to(device);
}

}  // namespace halfgrad
