// Elementwise ops on the CPU: the plan around the loops of kernels/elementwise.cpp.
//
// The space is cut into chunks for the threads and those into blocks that fit the first-level cache. For each block
// every operand is loaded into a dense buffer of the type that is computed in (or read where it lies, if it is dense
// and of that type already), the loop runs, and the result is stored, rounded once. So one loop per op serves every
// dtype, every layout and every kind of broadcasting.

#include <array>
#include <cstddef>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/parallel.h"
#include "engine/loops.h"

namespace halfgrad {

namespace {

using cpu::Compute;
using cpu::kernels;
using cpu::parallel_for;

constexpr std::int64_t kBlock = 512;    // 4 KiB of f64 per operand
constexpr std::int64_t kChunk = 32768;  // elements; a smaller op is not worth a second thread

Compute compute_of(DType t) { return t == f64 ? cpu::compute_f64 : t == i64 ? cpu::compute_i64 : cpu::compute_f32; }

// Memory for one block of one operand.
struct Buffer {
  alignas(64) std::byte bytes[kBlock * sizeof(double)];
};

// An operand on its way through the blocks of one chunk.
class Operand {
 public:
  Operand(const View& view, const LoopNest& nest, int position, DType compute)
      : view_(view),
        nest_(nest),
        position_(position),
        size_(static_cast<std::int64_t>(size_of(view.dtype))),
        in_place_(view && view.dtype == compute && nest.is_dense(position)) {
    const auto type = static_cast<std::size_t>(view.dtype);
    load_ = kernels().elementwise.load[type][compute_of(compute)];
    store_ = kernels().elementwise.store[type][compute_of(compute)];
    compute_size_ = static_cast<std::int64_t>(size_of(compute));
  }

  /// The elements [begin, end) as a dense block.
  const void* load(std::int64_t begin, std::int64_t end) {
    if (!view_) return nullptr;
    if (in_place_) return view_.as<char>() + begin * size_;
    load_into(buffer_.bytes, begin, end);
    return buffer_.bytes;
  }

  void load_into(void* block, std::int64_t begin, std::int64_t end) const {
    nest_.for_runs(
        std::array{position_}, begin, end, [&](auto& offset, auto& stride, std::int64_t done, std::int64_t n) {
          load_(view_.as<char>() + offset[0] * size_, stride[0], static_cast<char*>(block) + done * compute_size_, n);
        });
  }

  /// Where the loop shall write the elements from `begin` on; null when this result is not wanted.
  void* target(std::int64_t begin) {
    if (!view_) return nullptr;
    return in_place_ ? static_cast<void*>(view_.as<char>() + begin * size_) : buffer_.bytes;
  }

  /// Brings what the loop wrote to its place.
  void store(std::int64_t begin, std::int64_t end) const {
    if (view_ && !in_place_) store_from(buffer_.bytes, begin, end);
  }

  void store_from(const void* block, std::int64_t begin, std::int64_t end) const {
    nest_.for_runs(std::array{position_}, begin, end,
                   [&](auto& offset, auto& stride, std::int64_t done, std::int64_t n) {
                     store_(static_cast<const char*>(block) + done * compute_size_,
                            view_.as<char>() + offset[0] * size_, stride[0], n);
                   });
  }

  bool in_place() const { return in_place_; }

 private:
  const View& view_;
  const LoopNest& nest_;
  int position_;
  std::int64_t size_;
  std::int64_t compute_size_ = 0;
  bool in_place_;
  cpu::ElementwiseKernels::Load load_ = nullptr;
  cpu::ElementwiseKernels::Store store_ = nullptr;
  Buffer buffer_;
};

// Calls body(begin, end) for blocks; `make_body` is called once per chunk, so that each thread has buffers of its own.
template <class MakeBody>
void for_blocks(std::int64_t numel, MakeBody&& make_body) {
  parallel_for(numel, kChunk, [&](std::int64_t begin, std::int64_t end) {
    auto body = make_body();
    for (std::int64_t at = begin; at < end; at += kBlock) body(at, std::min(at + kBlock, end));
  });
}

}  // namespace

void CpuBackend::unary(int op, const double* params, DType compute, const View& y, const View& x) {
  const LoopNest nest{&y, &x};
  const auto loop = kernels().elementwise.unary[op][compute_of(compute)];
  for_blocks(nest.numel, [&] {
    return [&, out = Operand(y, nest, 0, compute), in = Operand(x, nest, 1, compute)](std::int64_t begin,
                                                                                      std::int64_t end) mutable {
      loop(params, in.load(begin, end), out.target(begin), end - begin);
      out.store(begin, end);
    };
  });
}

void CpuBackend::unary_backward(int op, const double* params, const View& dx, const View& dy, const View& x,
                                const View& y) {
  const LoopNest nest{&dx, &dy, &x, &y};
  const DType compute = compute_dtype(dx.dtype);
  const auto loop = kernels().elementwise.unary_backward[op][compute_of(compute)];
  for_blocks(nest.numel, [&] {
    return [&, out = Operand(dx, nest, 0, compute), gradient = Operand(dy, nest, 1, compute),
            input = Operand(x, nest, 2, compute),
            output = Operand(y, nest, 3, compute)](std::int64_t begin, std::int64_t end) mutable {
      loop(params, gradient.load(begin, end), input.load(begin, end), output.load(begin, end), out.target(begin),
           end - begin);
      out.store(begin, end);
    };
  });
}

void CpuBackend::binary(int op, DType compute, const View& y, const View& a, const View& b) {
  const LoopNest nest{&y, &a, &b};
  const auto loop = kernels().elementwise.binary[op][compute_of(compute)];
  for_blocks(nest.numel, [&] {
    return [&, out = Operand(y, nest, 0, compute), left = Operand(a, nest, 1, compute),
            right = Operand(b, nest, 2, compute)](std::int64_t begin, std::int64_t end) mutable {
      loop(left.load(begin, end), right.load(begin, end), out.target(begin), end - begin);
      out.store(begin, end);
    };
  });
}

void CpuBackend::binary_backward(int op, const View& da, const View& db, const View& dy, const View& a, const View& b,
                                 const View& y) {
  const LoopNest nest{da ? &da : &db, &db, &dy, &a, &b, &y};
  const DType compute = compute_dtype(dy.dtype);
  const auto loop = kernels().elementwise.binary_backward[op][compute_of(compute)];
  for_blocks(nest.numel, [&] {
    return [&, out_a = Operand(da, nest, 0, compute), out_b = Operand(db, nest, 1, compute),
            gradient = Operand(dy, nest, 2, compute), left = Operand(a, nest, 3, compute),
            right = Operand(b, nest, 4, compute),
            output = Operand(y, nest, 5, compute)](std::int64_t begin, std::int64_t end) mutable {
      loop(gradient.load(begin, end), left.load(begin, end), right.load(begin, end), output.load(begin, end),
           out_a.target(begin), out_b.target(begin), end - begin);
      out_a.store(begin, end);
      out_b.store(begin, end);
    };
  });
}

void CpuBackend::select(const View& y, const View& condition, const View& a, const View& b) {
  const LoopNest nest{&y, &condition, &a, &b};
  const DType compute = compute_dtype(y.dtype);
  const auto loop = kernels().elementwise.select[compute_of(compute)];
  const auto move_byte = kernels().elementwise.move[0];
  for_blocks(nest.numel, [&] {
    return [&, out = Operand(y, nest, 0, compute), left = Operand(a, nest, 2, compute),
            right = Operand(b, nest, 3, compute)](std::int64_t begin, std::int64_t end) mutable {
      std::uint8_t flags[kBlock];
      nest.for_runs(std::array{1}, begin, end, [&](auto& offset, auto& stride, std::int64_t done, std::int64_t n) {
        move_byte(condition.as<char>() + offset[0], stride[0], flags + done, 1, n);
      });
      loop(flags, left.load(begin, end), right.load(begin, end), out.target(begin), end - begin);
      out.store(begin, end);
    };
  });
}

void CpuBackend::copy(const View& dst, const View& src) {
  const LoopNest nest{&dst, &src};
  if (dst.dtype == src.dtype) {  // bytes, whatever they mean
    const std::int64_t size = static_cast<std::int64_t>(size_of(dst.dtype));
    const auto move = kernels().elementwise.move[size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0];
    parallel_for(nest.numel, kChunk, [&](std::int64_t begin, std::int64_t end) {
      nest.for_runs(std::array{0, 1}, begin, end, [&](auto& offset, auto& stride, std::int64_t, std::int64_t n) {
        move(src.as<char>() + offset[1] * size, stride[1], dst.as<char>() + offset[0] * size, stride[0], n);
      });
    });
    return;
  }
  // Halves are exact in f32; an f64 on either side, or an integer, is read as it is, so that there is one rounding.
  const bool wide = src.dtype == f64 || (dst.dtype == f64 && is_floating(src.dtype));
  const DType compute = wide ? f64 : compute_dtype(src.dtype);
  for_blocks(nest.numel, [&] {
    return [&, out = Operand(dst, nest, 0, compute), in = Operand(src, nest, 1, compute)](std::int64_t begin,
                                                                                          std::int64_t end) mutable {
      if (out.in_place())
        in.load_into(out.target(begin), begin, end);
      else
        out.store_from(in.load(begin, end), begin, end);
    };
  });
}

}  // namespace halfgrad
