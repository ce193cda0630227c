#include <algorithm>

#include "tests/ops/oracle.h"

namespace halfgrad::oracle {

std::int64_t Array::offset(const Shape& index) const {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

Array relu(Array y) {
  for (Num& v : y.values)
    if (v.value <= 0) v = Num(0);
  return y;
}

std::vector<Shape> indices(const Shape& shape) {
  std::vector<Shape> all;
  Shape index(shape.size(), 0);
  for (std::int64_t n = shape.numel(); n > 0; --n) {
    all.push_back(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return all;
}

Shape with(Shape index, std::size_t dim, std::int64_t value) {
  index[dim] = value;
  return index;
}

Array map(const Array& x, const std::function<Num(const Num&)>& f) { return map(x, x.dtype, f); }
Array map(const Array& x, DType dtype, const std::function<Num(const Num&)>& f) {
  Array y(x.shape, dtype);
  std::transform(x.values.begin(), x.values.end(), y.values.begin(), f);
  return y;
}

Array broadcast(const Array& x, const Shape& target) {
  if (x.shape == target) return x;
  Array y(target, x.dtype);
  const std::size_t lead = target.size() - x.shape.size();
  for (const Shape& index : indices(target)) {
    Shape from(x.shape.size(), 0);
    for (std::size_t d = 0; d < from.size(); ++d) from[d] = x.shape[d] == 1 ? 0 : index[d + lead];
    y[index] = between_nodes(x[from]);
  }
  return y;
}

Array zip(const Array& a, const Array& b, const std::function<Num(const Num&, const Num&)>& f) {
  return zip(a, b, promote(a.dtype, b.dtype), f);
}
Array zip(const Array& a, const Array& b, DType dtype, const std::function<Num(const Num&, const Num&)>& f) {
  const Shape shape = broadcast_shapes(a.shape, b.shape, "zip");
  const Array left = broadcast(a, shape), right = broadcast(b, shape);
  Array y(shape, dtype);
  std::transform(left.values.begin(), left.values.end(), right.values.begin(), y.values.begin(), f);
  return y;
}

Array reduce(const Array& x, const Shape& dims, bool keepdim, DType dtype,
             const std::function<Num(const std::vector<Num>&)>& f) {
  const Shape reduced = normalize_dims(dims, x.shape.rank(), "reduce");
  Array kept(reduced_shape(x.shape, reduced, true), dtype);
  std::vector<std::vector<Num>> groups(kept.values.size());
  const std::vector<Shape> all = indices(x.shape);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < x.shape.size(); ++d) at = at * kept.shape[d] + (kept.shape[d] == 1 ? 0 : all[i][d]);
    groups[static_cast<std::size_t>(at)].push_back(x.values[i]);
  }
  std::transform(groups.begin(), groups.end(), kept.values.begin(), f);
  kept.shape = reduced_shape(x.shape, reduced, keepdim);
  return kept;
}

Array along(const Array& x, std::int64_t dim, const std::function<std::vector<Num>(const std::vector<Num>&)>& f) {
  const auto d = static_cast<std::size_t>(dim < 0 ? dim + x.shape.rank() : dim);
  Array y(x.shape, x.dtype);
  for (const Shape& index : indices(x.shape)) {
    if (index[d] != 0) continue;
    std::vector<Num> line;
    for (std::int64_t i = 0; i < x.shape[d]; ++i) line.push_back(x[with(index, d, i)]);
    const std::vector<Num> result = f(line);
    for (std::int64_t i = 0; i < x.shape[d]; ++i) y[with(index, d, i)] = result[static_cast<std::size_t>(i)];
  }
  return y;
}

}  // namespace halfgrad::oracle
