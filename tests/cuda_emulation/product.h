#pragma once
// The products of matrices that cuBLAS and cuBLASLt compute, in columns as they see them.

#include "library.h"

namespace cuda_emulation {

struct ColumnMatrices {
  const void* data;
  std::int64_t ld, step;
  bool transposed;

  /// Where element (i, j) of op(matrix) number `item` lies.
  std::int64_t at(std::int64_t item, std::int64_t i, std::int64_t j) const {
    return item * step + (transposed ? j + i * ld : i + j * ld);
  }
  /// The leading dimension reaches from one column to the next, for a rows x columns op(matrix).
  bool fits(std::int64_t rows, std::int64_t columns) const {
    const std::int64_t length = transposed ? columns : rows;
    return ld >= (length > 1 ? length : 1);
  }
};

/// c = op(a) op(b), a [m, k], b [k, n], with bias [m] or without, and relu behind it or not.
struct ColumnProduct {
  Number type;
  std::int64_t m, n, k, count;
  ColumnMatrices a, b, c;
  const void* bias = nullptr;
  bool relu = false;

  bool fits() const {
    return m >= 0 && n >= 0 && k >= 0 && count >= 0 && a.fits(m, k) && b.fits(k, n) && c.fits(m, n) && !c.transposed;
  }
  void check_operands(const char* call) const {
    if (m == 0 || n == 0 || k == 0 || count == 0) return;
    check_operand(call, "the first matrix", a.data, type, a.at(count - 1, m - 1, k - 1) + 1);
    check_operand(call, "the second matrix", b.data, type, b.at(count - 1, k - 1, n - 1) + 1);
    check_operand(call, "the result", c.data, type, c.at(count - 1, m - 1, n - 1) + 1);
    if (bias) check_operand(call, "the bias", bias, type, m);
  }
  void compute(const Blend& blend) const {
    in_compute_type(type, [&]<class C>(C) {
      for (std::int64_t item = 0; item < count; ++item)
        for (std::int64_t j = 0; j < n; ++j)
          for (std::int64_t i = 0; i < m; ++i) {
            C sum = 0;
            for (std::int64_t p = 0; p < k; ++p)
              sum += read<C>(type, a.data, a.at(item, i, p)) * read<C>(type, b.data, b.at(item, p, j));
            if (bias) sum += read<C>(type, bias, i);
            if (relu && sum < 0) sum = 0;
            blend(type, const_cast<void*>(c.data), c.at(item, i, j), sum);
          }
    });
  }
};

}  // namespace cuda_emulation
