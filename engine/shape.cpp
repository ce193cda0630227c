#include "engine/shape.h"

#include "engine/error.h"

namespace halfgrad {

std::int64_t* Shape::allocate_on_heap(std::size_t n) {
  if (n > size_ || !heap_) heap_ = std::make_unique<std::int64_t[]>(n);
  size_ = n;
  return heap_.get();
}

void Shape::insert(std::size_t at, std::int64_t value) {
  if (heap_ || size_ == kInline) {
    const Shape before = *this;
    std::copy_n(before.data(), before.size(), allocate(size_ + 1));
  } else {
    ++size_;
  }
  for (std::size_t i = size_ - 1; i > at; --i) data()[i] = data()[i - 1];
  data()[at] = value;
}

void Shape::erase(std::size_t at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --size_;
}

std::string Shape::str() const {
  std::string text(1, '[');
  for (std::int64_t size : *this) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text.append(1, ']');
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides(shape.size(), 1);
  for (int d = shape.rank() - 2; d >= 0; --d) strides[d] = strides[d + 1] * std::max<std::int64_t>(shape[d + 1], 1);
  return strides;
}

bool is_dense(const Shape& shape, const Strides& strides) {
  const std::int64_t n = shape.numel();
  std::int64_t filled = n == 0 ? 0 : 1;  // so many elements from the first on, by the dimensions found yet
  for (bool grows = true; grows && filled < n;) {
    grows = false;
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (shape[d] > 1 && strides[d] == filled) {
        filled *= shape[d];
        grows = true;
      }
  }
  return n > 0 && filled == n;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {  // i counts from the last dimension
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    check(x == y || x == 1 || y == 1,
          "{}: shapes {} and {} do not broadcast: counted from the last, dimension {} is {} against {}; sizes must be "
          "equal or 1",
          op, a, b, i + 1, x, y);
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

int normalize_dim(std::int64_t dim, int rank, const char* op) {
  const int span = std::max(rank, 1);  // a scalar has one addressable dimension, as in PyTorch
  check(dim >= -span && dim < span, "{}: dimension {} is out of range for a tensor of rank {}: expected [{}, {}]", op,
        dim, rank, -span, span - 1);
  return static_cast<int>(dim < 0 ? dim + span : dim);
}

Shape normalize_dims(const Shape& dims, int rank, const char* op) {
  Shape out;
  if (dims.empty()) {
    for (int d = 0; d < rank; ++d) out.push_back(d);
    return out;
  }
  for (std::int64_t dim : dims) {
    const int d = normalize_dim(dim, rank, op);
    check(std::find(out.begin(), out.end(), d) == out.end(), "{}: dimension {} is named twice in {}", op, d, dims);
    if (rank > 0) out.push_back(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Shape reduced_shape(const Shape& shape, const Shape& dims, bool keepdim) {
  Shape out;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced)
      out.push_back(shape[d]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides out(target.size(), 0);
  const std::size_t lead = target.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == target[lead + d]) out[lead + d] = strides[d];
    // else shape[d] is 1 and the stride stays 0
  }
  return out;
}

}  // namespace halfgrad
