#pragma once
// Shapes and strides: short lists of 64-bit integers that live on the stack up to rank 6.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/error.h"

namespace halfgrad {

/// A list of integers with room for six without the heap. Used for shapes, strides and lists of dimensions.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values) : Shape(values.begin(), values.size()) {}
  Shape(const std::vector<std::int64_t>& values) : Shape(values.data(), values.size()) {}
  Shape(const std::int64_t* values, std::size_t n) { std::copy_n(values, n, allocate(n)); }
  explicit Shape(std::size_t n, std::int64_t value) { std::fill_n(allocate(n), n, value); }
  Shape(const Shape& other) { *this = other; }
  Shape(Shape&& other) noexcept { *this = std::move(other); }
  Shape& operator=(const Shape& other) {
    if (!heap_ && !other.heap_) [[likely]] {
      size_ = other.size_;
      std::copy_n(other.inline_, kInline, inline_);  // all of them: their number is a constant
    } else if (this != &other) {
      std::copy_n(other.data(), other.size(), allocate(other.size()));
    }
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    if (this == &other) return *this;
    size_ = std::exchange(other.size_, 0);
    heap_ = std::move(other.heap_);
    std::copy_n(other.inline_, kInline, inline_);
    return *this;
  }

  std::size_t size() const { return size_; }
  int rank() const { return static_cast<int>(size_); }
  bool empty() const { return size_ == 0; }
  const std::int64_t* data() const { return heap_ ? heap_.get() : inline_; }
  std::int64_t* data() { return heap_ ? heap_.get() : inline_; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  std::int64_t& operator[](std::size_t i) { return data()[i]; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + size_; }
  std::int64_t* begin() { return data(); }
  std::int64_t* end() { return data() + size_; }
  std::int64_t back() const { return data()[size_ - 1]; }

  void push_back(std::int64_t value) {
    if (!heap_ && size_ < kInline) [[likely]]
      inline_[size_++] = value;
    else
      insert(size_, value);
  }
  void insert(std::size_t at, std::int64_t value);
  void erase(std::size_t at);

  /// The product of all entries: the number of elements of a shape (1 for rank 0).
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t v : *this) n *= v;
    return n;
  }
  std::vector<std::int64_t> vec() const { return {begin(), end()}; }
  /// "[2, 3]"
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  static constexpr std::size_t kInline = 6;
  // Room for n entries, contents undefined.
  std::int64_t* allocate(std::size_t n) {
    if (n > kInline || heap_) [[unlikely]]
      return allocate_on_heap(n);
    size_ = n;
    return inline_;
  }
  std::int64_t* allocate_on_heap(std::size_t n);

  std::size_t size_ = 0;
  std::int64_t inline_[kInline] = {};
  std::unique_ptr<std::int64_t[]> heap_;  // for more than kInline
};

using Strides = Shape;  // in elements, not bytes; 0 along a broadcast dimension

/// Row-major strides of a dense tensor.
Strides contiguous_strides(const Shape& shape);

/// True when the elements fill their memory without gaps and none lies on another, in whatever order of dimensions;
/// false when there are none.
bool is_dense(const Shape& shape, const Strides& strides);

/// NumPy's broadcasting of two shapes; `op` names the caller in the error.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// A dimension counted from the end when negative; throws Error naming `op` when out of [-rank, rank).
int normalize_dim(std::int64_t dim, int rank, const char* op);

/// The same for a list, which may not name a dimension twice; an empty list means all dimensions. Sorted ascending.
Shape normalize_dims(const Shape& dims, int rank, const char* op);

/// The shape after reducing over `dims` (normalised): 1 in their place when keepdim, else dropped.
Shape reduced_shape(const Shape& shape, const Shape& dims, bool keepdim);

/// Strides with which a tensor (shape, strides) is read as if it had the shape `target`, which it broadcasts to.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);

}  // namespace halfgrad

template <>
struct fmt::formatter<halfgrad::Shape> : halfgrad::TextFormatter {
  template <class Context>
  auto format(const halfgrad::Shape& shape, Context& context) const {
    return write(shape.str(), context);
  }
};
