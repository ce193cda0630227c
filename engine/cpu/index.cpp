// Gather and scatter on the CPU.
//
// index_select and index_add are gather and scatter_add with an index that is the same along every dimension
// but one: stride 0. So there are two kernels, and each has two ways to go. Where neighbours along the last
// dimension share their index, whole rows move; else each element of a line along `dim` looks up its own.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"

namespace halfgrad {
namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that are worth a thread's while

// What the index addresses (x of a gather, y of a scatter), the dense other side, and the index; `dense` and
// `index` have the same shape.
struct Lookup {
  View dense, index, target;
  int dim;
  int line;                    // the dimension that the inner loop runs along
  bool whole_rows;             // one index for the whole line
  std::int64_t count, length;  // lines, and elements of each

  Lookup(View d, View i, View t, int along)
      : dense(std::move(d)), index(std::move(i)), target(std::move(t)), dim(along) {
    while (merge_last_two()) {
    }
    const int last = dense.shape.rank() - 1;
    whole_rows = dim != last && index.strides[static_cast<std::size_t>(last)] == 0;
    line = whole_rows ? last : dim;
    length = dense.shape[static_cast<std::size_t>(line)];
    count = length == 0 ? 0 : dense.shape.numel() / length;
  }

  // Offsets of the first element of a line. The target's does not include what the index adds along `dim`.
  struct Start {
    std::int64_t dense = 0, index = 0, target = 0;
  };
  Start start(std::int64_t number) const {
    Start s;
    for (int d = dense.shape.rank() - 1; d >= 0; --d) {
      if (d == line) continue;
      const auto at = static_cast<std::size_t>(d);
      const std::int64_t i = number % dense.shape[at];
      number /= dense.shape[at];
      s.dense += i * dense.strides[at];
      s.index += i * index.strides[at];
      if (d != dim) s.target += i * target.strides[at];
    }
    return s;
  }
  std::int64_t stride(const View& v, int d) const { return v.strides[static_cast<std::size_t>(d)]; }

 private:
  // Longer rows for free: two last dimensions, neither of them `dim`, that are one in all three memories.
  bool merge_last_two() {
    const std::size_t rank = dense.shape.size();
    if (rank < 2 || dim >= static_cast<int>(rank) - 2) return false;
    const std::size_t a = rank - 2, b = rank - 1;
    if (target.shape[a] != dense.shape[a] || target.shape[b] != dense.shape[b]) return false;
    for (const View* v : {&dense, &index, &target})
      if (v->strides[a] != v->strides[b] * v->shape[b]) return false;
    for (View* v : {&dense, &index, &target}) {
      v->shape[b] *= v->shape[a];
      v->shape.erase(a);
      v->strides.erase(a);
    }
    return true;
  }
};

// y = target[index]. Only moves, so T is any type of the right size.
template <class T>
void gather_lines(const Lookup& look) {
  const std::int64_t along = look.stride(look.target, look.dim), y_step = look.stride(look.dense, look.line);
  const std::int64_t x_step = look.stride(look.target, look.line), index_step = look.stride(look.index, look.line);
  cpu::parallel_for(look.count, kChunk / look.length, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto start = look.start(i);
      const std::int64_t* index = look.index.as<std::int64_t>() + start.index;
      T* y = look.dense.as<T>() + start.dense;
      const T* x = look.target.as<T>() + start.target;
      if (!look.whole_rows) {
        for (std::int64_t j = 0; j < look.length; ++j) y[j * y_step] = x[index[j * index_step] * along];
        continue;
      }
      x += *index * along;
      if (x_step == 1 && y_step == 1) {
        std::memcpy(y, x, static_cast<std::size_t>(look.length) * sizeof(T));
      } else {
        for (std::int64_t j = 0; j < look.length; ++j) y[j * y_step] = x[j * x_step];
      }
    }
  });
}

template <class T>
void add_to(T& sum, T value) {
  if constexpr (std::is_integral_v<T>) {  // wraps, without undefined behaviour
    sum = static_cast<T>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(value));
  } else {
    sum += value;
  }
}

// target[index] += src. Elements that may meet in one place are added by one thread, in the order of src.
template <class T>
void scatter_lines(const Lookup& look) {
  const std::int64_t along = look.stride(look.target, look.dim), src_step = look.stride(look.dense, look.line);
  const std::int64_t y_step = look.stride(look.target, look.line), index_step = look.stride(look.index, look.line);
  if (look.whole_rows) {  // each thread has some columns of all rows
    cpu::parallel_for(
        look.length, std::max<std::int64_t>(kChunk / look.count, 16), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = 0; i < look.count; ++i) {
            const auto start = look.start(i);
            const T* src = look.dense.as<T>() + start.dense;
            T* y = look.target.as<T>() + start.target + look.index.as<std::int64_t>()[start.index] * along;
            if (src_step == 1 && y_step == 1) {
              for (std::int64_t j = begin; j < end; ++j) add_to(y[j], src[j]);
            } else {
              for (std::int64_t j = begin; j < end; ++j) add_to(y[j * y_step], src[j * src_step]);
            }
          }
        });
    return;
  }
  cpu::parallel_for(look.count, kChunk / look.length, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto start = look.start(i);
      const std::int64_t* index = look.index.as<std::int64_t>() + start.index;
      const T* src = look.dense.as<T>() + start.dense;
      T* y = look.target.as<T>() + start.target;
      for (std::int64_t j = 0; j < look.length; ++j) add_to(y[index[j * index_step] * along], src[j * src_step]);
    }
  });
}

// A vector of indices as an index of the given shape.
View expand_index(const View& index, const Shape& shape, int dim) {
  View expanded{index.data, index.dtype, shape, Strides(shape.size(), 0)};
  expanded.strides[static_cast<std::size_t>(dim)] = index.strides[0];
  return expanded;
}

}  // namespace

void CpuBackend::gather(const View& y, const View& x, const View& index, int dim) {
  const Lookup look(y, index, x, dim);
  if (look.count == 0) return;
  switch (size_of(y.dtype)) {
    case 1:
      return gather_lines<std::uint8_t>(look);
    case 2:
      return gather_lines<std::uint16_t>(look);
    case 4:
      return gather_lines<std::uint32_t>(look);
    default:
      return gather_lines<std::uint64_t>(look);
  }
}

void CpuBackend::scatter_add(const View& y, const View& index, const View& src, int dim) {
  const Lookup look(src, index, y, dim);
  if (look.count == 0) return;
  switch (y.dtype) {
    case f32:
      return scatter_lines<float>(look);
    case f64:
      return scatter_lines<double>(look);
    case i32:
      return scatter_lines<std::int32_t>(look);
    case i64:
      return scatter_lines<std::int64_t>(look);
    case u8:
      return scatter_lines<std::uint8_t>(look);
    case f16:
    case boolean:
      fail("scatter_add: no sums in {}; add in a wider dtype", name_of(y.dtype));
  }
}

void CpuBackend::index_select(const View& y, const View& x, const View& index, int dim) {
  gather(y, x, expand_index(index, y.shape, dim), dim);
}

void CpuBackend::index_add(const View& y, const View& index, const View& src, int dim) {
  scatter_add(y, expand_index(index, src.shape, dim), src, dim);
}

void CpuBackend::check_index(const char* op, const View& out, const View& index, std::int64_t size) {
  copy(out, index);
  const auto* const values = out.as<const std::int64_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    check(values[i] >= 0 && values[i] < size, "{}: index {} (element {}) is out of range, expected [0, {})", op,
          values[i], i, size);
}

}  // namespace halfgrad
