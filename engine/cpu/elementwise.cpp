// Elementwise ops on the CPU: the plan around the loops of kernels/elementwise.h.
//
// The space, in the order of memory, is cut into chunks for the threads and those into tiles: rows along the innermost
// dimension, one or more along the next. An operand whose rows lie dense in memory, or which is one number for each row,
// is used where it is; any other is converted into a buffer, tile by tile, and the result back out of one. So one loop
// per op and type serves every dtype, every layout and every kind of broadcasting.

#include <array>
#include <cstddef>
#include <limits>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/loops.h"

namespace halfgrad {

namespace {

using cpu::Compute;
using cpu::Extent;
using cpu::kernels;
using cpu::parallel_for;
using cpu::Rows;

constexpr std::int64_t kBlock = 512;    // numbers in a buffer: 4 KiB of f64
constexpr std::int64_t kChunk = 32768;  // elements; a smaller op is not worth a second thread

Compute compute_of(DType t) { return t == f64 ? cpu::compute_f64 : t == i64 ? cpu::compute_i64 : cpu::compute_f32; }

// Some rows of the space, or a part of one.
struct Tile {
  Shape index;  // of its first element
  Extent extent;
};

// One operand of an op.
class Operand {
 public:
  Operand() = default;
  Operand(const View& view, const Strides& strides, bool may_spread)
      : view_(&view), strides_(&strides), may_spread_(may_spread) {
    column_step_ = strides.back();
    row_step_ = strides.size() > 1 ? strides[strides.size() - 2] : 0;
  }

  explicit operator bool() const { return view_ != nullptr && *view_; }
  bool is_dense_half() const { return view_->dtype == f16 && column_step_ == 1; }
  bool is_spread() const { return may_spread_ && column_step_ == 0; }

  /// Decides how the operand is used by loops over numbers stored as `stored` and computed in `compute`.
  void plan(DType stored, DType compute) {
    const DType wanted = is_spread() ? compute : stored;
    direct_ = view_->dtype == wanted && (column_step_ == 1 || is_spread());
    if (direct_) return;
    const cpu::ElementwiseKernels& table = kernels().elementwise;
    const auto type = static_cast<std::size_t>(view_->dtype);
    load_ = table.load[type][compute_of(compute)];
    store_ = table.store[type][compute_of(compute)];
    compute_size_ = static_cast<std::int64_t>(size_of(compute));
  }
  bool direct() const { return direct_; }

  /// The operand's part of a tile, for reading.
  Rows read(const Tile& tile, std::byte* buffer) const {
    if (!*this) return {};
    if (direct_) return {at(tile), row_step_, is_spread()};
    if (is_spread()) {  // one number for each row
      load_(at(tile), row_step_, buffer, tile.extent.rows);
      return {buffer, 1, true};
    }
    for_each_row(tile, [&](void* row, std::int64_t done) {
      load_(row, column_step_, buffer + done * compute_size_, tile.extent.columns);
    });
    return {buffer, tile.extent.columns, false};
  }

  /// Where the loop shall write its part of a tile ...
  Rows target(const Tile& tile, std::byte* buffer) const {
    if (!*this) return {};
    return direct_ ? Rows{at(tile), row_step_, false} : Rows{buffer, tile.extent.columns, false};
  }
  /// ... and what brings that to its place.
  void store(const Tile& tile, const std::byte* buffer) const {
    if (!*this || direct_) return;
    for_each_row(tile, [&](void* row, std::int64_t done) {
      store_(buffer + done * compute_size_, row, column_step_, tile.extent.columns);
    });
  }

 private:
  char* at(const Tile& tile) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < tile.index.size(); ++d) offset += tile.index[d] * (*strides_)[d];
    return static_cast<char*>(view_->at(offset));
  }
  template <class F>
  void for_each_row(const Tile& tile, F f) const {
    char* row = at(tile);
    const std::int64_t step = row_step_ * static_cast<std::int64_t>(size_of(view_->dtype));
    for (std::int64_t r = 0; r < tile.extent.rows; ++r) f(row + r * step, r * tile.extent.columns);
  }

  const View* view_ = nullptr;
  const Strides* strides_ = nullptr;
  std::int64_t row_step_ = 0, column_step_ = 0, compute_size_ = 0;
  bool may_spread_ = false, direct_ = false;
  cpu::ElementwiseKernels::Load load_ = nullptr;
  cpu::ElementwiseKernels::Store store_ = nullptr;
};

// All operands of an op: kOut that are written, then those that are read.
template <int kOut, std::size_t kCount>
class Plan {
 public:
  /// halves: there is a loop for f16, too. spread: the loops can read operands of which a row is one number.
  Plan(const LoopNest& nest, const std::array<const View*, kCount>& views, DType compute, bool halves, bool spread)
      : nest_(nest) {
    for (std::size_t i = 0; i < kCount; ++i)
      if (*views[i]) operands_[i] = Operand(*views[i], nest.strides[i], spread && i >= kOut);
    for (std::size_t i = 0; i < kCount; ++i)
      halves = halves && (!operands_[i] || operands_[i].is_dense_half() || operands_[i].is_spread());
    stored_ = halves ? static_cast<int>(cpu::stored_f16) : static_cast<int>(compute_of(compute));
    for (Operand& operand : operands_) {
      if (!operand) continue;
      operand.plan(halves ? f16 : compute, compute);
      // A buffer holds so many rows, or so many numbers.
      if (!operand.direct()) (operand.is_spread() ? most_rows_ : most_numbers_) = kBlock;
    }
  }

  /// The column of a table of loops.
  int stored() const { return stored_; }

  /// loop(extent, rows of each operand) for all tiles, on all threads.
  template <class Loop>
  void run(Loop loop) const {
    parallel_for(nest_.numel, kChunk, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) std::byte buffers[kCount][kBlock * sizeof(double)];
      std::array<Rows, kCount> rows;
      for_tiles(begin, end, [&](const Tile& tile) {
        for (std::size_t i = 0; i < kCount; ++i)
          rows[i] = i < kOut ? operands_[i].target(tile, buffers[i]) : operands_[i].read(tile, buffers[i]);
        std::apply([&](const auto&... each) { loop(tile.extent, each...); }, rows);
        for (std::size_t i = 0; i < kOut; ++i) operands_[i].store(tile, buffers[i]);
      });
    });
  }

 private:
  template <class F>
  void for_tiles(std::int64_t begin, std::int64_t end, F f) const {
    const std::size_t last = nest_.shape.size() - 1;
    Tile tile{Shape(last + 1, 0), {}};
    if (last == 0) {  // one long row
      for (; begin < end; begin += tile.extent.columns) {
        tile.index[0] = begin;
        tile.extent = {1, std::min(end - begin, most_numbers_)};
        f(tile);
      }
      return;
    }
    const std::int64_t columns = nest_.shape[last], rows = nest_.shape[last - 1];
    const std::int64_t fitting_rows = std::min(most_rows_, most_numbers_ / columns);
    while (begin < end) {
      std::int64_t rest = begin;
      for (std::size_t d = last + 1; d-- > 0; rest /= nest_.shape[d]) tile.index[d] = rest % nest_.shape[d];
      const std::int64_t column = tile.index[last];
      const std::int64_t whole_rows = std::min(fitting_rows, (end - begin) / columns);
      if (column > 0 || whole_rows == 0)
        tile.extent = {1, std::min({columns - column, end - begin, most_numbers_})};
      else
        tile.extent = {std::min(whole_rows, rows - tile.index[last - 1]), columns};
      f(tile);
      begin += tile.extent.rows * tile.extent.columns;
    }
  }

  const LoopNest& nest_;
  std::array<Operand, kCount> operands_;
  int stored_;
  std::int64_t most_rows_ = std::numeric_limits<std::int64_t>::max(), most_numbers_ = most_rows_;
};

}  // namespace

void CpuBackend::unary(int op, const double* params, DType compute, const View& y, const View& x) {
  const LoopNest nest{&y, &x};
  const auto& loops = kernels().elementwise.unary[op];
  const Plan<1, 2> plan(nest, {&y, &x}, compute, loops[cpu::stored_f16] != nullptr, false);
  plan.run([&](Extent extent, const Rows& to, const Rows& from) { loops[plan.stored()](params, extent, to, from); });
}

void CpuBackend::unary_backward(int op, const double* params, const View& dx, const View& dy, const View& x,
                                const View& y) {
  const View& kept = x ? x : y;
  const LoopNest nest{&dx, &dy, &kept};
  const auto& loops = kernels().elementwise.unary_backward[op];
  const Plan<1, 3> plan(nest, {&dx, &dy, &kept}, compute_dtype(dx.dtype), true, false);
  plan.run([&](Extent extent, const Rows& to, const Rows& gradient, const Rows& from) {
    loops[plan.stored()](params, extent, to, gradient, from);
  });
}

void CpuBackend::binary(int op, DType compute, const View& y, const View& a, const View& b) {
  const LoopNest nest{&y, &a, &b};
  const auto& loops = kernels().elementwise.binary[op];
  const Plan<1, 3> plan(nest, {&y, &a, &b}, compute, loops[cpu::stored_f16] != nullptr, true);
  plan.run(loops[plan.stored()]);
}

void CpuBackend::binary_backward(int op, const View& da, const View& db, const View& dy, const View& a, const View& b,
                                 const View& y) {
  // The output in front decides the order in which memory is walked through.
  const bool only_b = !da;
  const LoopNest nest{only_b ? &db : &da, only_b ? &da : &db, &dy, &a, &b, &y};
  const auto& loops = kernels().elementwise.binary_backward[op];
  const Plan<2, 6> plan(nest, {only_b ? &db : &da, only_b ? &da : &db, &dy, &a, &b, &y}, compute_dtype(dy.dtype), true,
                        true);
  plan.run([&](Extent extent, const Rows& first, const Rows& second, const Rows& gradient, const Rows& left,
               const Rows& right, const Rows& result) {
    loops[plan.stored()](extent, only_b ? second : first, only_b ? first : second, gradient, left, right, result);
  });
}

void CpuBackend::select(const View& y, const View& condition, const View& a, const View& b) {
  const LoopNest nest{&y, &condition, &a, &b};
  const DType compute = compute_dtype(y.dtype);
  const Plan<1, 4> plan(nest, {&y, &condition, &a, &b}, compute, false, true);
  plan.run(kernels().elementwise.select[plan.stored()]);
}

void CpuBackend::copy(const View& dst, const View& src) {
  const LoopNest nest{&dst, &src};
  if (dst.dtype == src.dtype) {  // bytes, whatever they mean
    const std::int64_t size = static_cast<std::int64_t>(size_of(dst.dtype));
    const auto move = kernels().elementwise.move[size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0];
    parallel_for(nest.numel, kChunk, [&](std::int64_t begin, std::int64_t end) {
      nest.for_runs(std::array{0, 1}, begin, end, [&](auto& offset, auto& stride, std::int64_t, std::int64_t n) {
        move(src.at(offset[1]), stride[1], dst.at(offset[0]), stride[0], n);
      });
    });
    return;
  }
  // Halves are exact in f32; an f64 on either side, or an integer, is read as it is, so that there is one rounding.
  const bool wide = src.dtype == f64 || (dst.dtype == f64 && is_floating(src.dtype));
  const DType between = wide ? f64 : compute_dtype(src.dtype);
  const Compute compute = compute_of(between);
  const auto load = kernels().elementwise.load[static_cast<std::size_t>(src.dtype)][compute];
  const auto store = kernels().elementwise.store[static_cast<std::size_t>(dst.dtype)][compute];
  const bool load_to_dst = dst.dtype == between && nest.strides[0].back() == 1;
  const bool store_from_src = src.dtype == between && nest.strides[1].back() == 1;
  const std::int64_t block = load_to_dst || store_from_src ? kChunk : kBlock;
  parallel_for(nest.numel, kChunk, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::byte buffer[kBlock * sizeof(double)];
    for (std::int64_t at = begin; at < end; at += block)
      nest.for_runs(std::array{0, 1}, at, std::min(at + block, end),
                    [&](auto& offset, auto& stride, std::int64_t, std::int64_t n) {
                      const void* from = src.at(offset[1]);
                      void* to = dst.at(offset[0]);
                      if (load_to_dst) return load(from, stride[1], to, n);
                      if (store_from_src) return store(from, to, stride[0], n);
                      load(from, stride[1], buffer, n);
                      store(buffer, to, stride[0], n);
                    });
  });
}

}  // namespace halfgrad
