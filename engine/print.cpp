// Tensors as text: nested brackets, columns of equal width, long dimensions shortened in the middle.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "engine/tensor.h"

namespace halfgrad {

namespace {

constexpr std::int64_t kEdge = 3;          // shown at either end of a long dimension
constexpr std::int64_t kLongTotal = 1000;  // tensors with more elements are shortened

std::string format_number(double value, DType dtype) {
  if (dtype == boolean) return value != 0 ? "true" : "false";
  if (!is_floating(dtype)) return fmt::format("{}", static_cast<std::int64_t>(value));
  if (!std::isfinite(value)) return fmt::format("{}", value);
  return fmt::format("{:.4g}", value);
}

class Printer {
 public:
  explicit Printer(const Tensor& x) : x_(x), shorten_(x.numel() > kLongTotal) {
    collect(x_);
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
  }
  std::string text() {
    write(0);
    return out_;
  }

 private:
  bool shortened(int dim) const { return shorten_ && x_.shape()[dim] > 2 * kEdge; }

  // The cells that are shown, in row-major order.
  void collect(const Tensor& part) {
    if (part.rank() == 0) {
      cells_.push_back(part.dtype() == i64 ? fmt::format("{}", part.item<std::int64_t>())
                                           : format_number(part.item(), part.dtype()));
      return;
    }
    const int dim = x_.rank() - part.rank();
    const std::int64_t n = part.shape()[0];
    for (std::int64_t i = 0; i < n; ++i) {
      if (shortened(dim) && i == kEdge) i = n - kEdge;
      collect(part[i]);
    }
  }

  void write(int dim) {
    if (dim == x_.rank()) {
      const std::string& cell = cells_[next_++];
      out_.append(width_ - cell.size(), ' ').append(cell);
      return;
    }
    const std::int64_t n = x_.shape()[dim];
    const bool innermost = dim == x_.rank() - 1;
    std::string separator(",");
    if (innermost)
      separator.push_back(' ');
    else
      separator.append(static_cast<std::size_t>(x_.rank() - 1 - dim), '\n')
          .append(static_cast<std::size_t>(dim) + 1, ' ');
    out_ += '[';
    for (std::int64_t i = 0; i < n; ++i) {
      if (i > 0) out_ += separator;
      if (shortened(dim) && i == kEdge) {
        out_.append("...").append(separator);
        i = n - kEdge;
      }
      write(dim + 1);
    }
    out_ += ']';
  }

  const Tensor& x_;
  bool shorten_;
  std::vector<std::string> cells_;
  std::size_t width_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "Tensor(undefined)";
  const Tensor plain = detach().to(Device::cpu());
  std::string text = Printer(plain).text();
  text += fmt::format("  {} {}", name_of(dtype()), shape().str());
  if (!device().is_cpu()) text.append(1, ' ').append(device().str());
  if (requires_grad()) text += " requires_grad";
  return text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << x.str(); }

}  // namespace halfgrad
