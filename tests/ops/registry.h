#pragma once
// The table of all ops. Each has one entry with sample inputs, the call, and a naive oracle (oracle.h, where
// the error bounds are derived); test_registry.cpp runs the same checks over all of them and fails when an op
// has no entry.
//
// A case is run in f64, f32 and f16 (or in the dtypes that it names) and in every memory layout of its
// inputs. In each run
// - the values must lie in the oracle's interval around the exact result at the rounded inputs,
// - and so must the gradients, from random gradients of the outputs;
// and in f64 gradcheck, and gradgradcheck of ops that are differentiable twice, compare gradients with
// measured slopes.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "tests/ops/oracle.h"

namespace halfgrad::testing {

using oracle::Array;
using oracle::Arrays;
using oracle::Num;

using Op = std::function<Tensors(const Tensors&)>;
using Oracle = std::function<Arrays(const Arrays&)>;
/// The same with one output.
using Op1 = std::function<Tensor(const Tensors&)>;
using Oracle1 = std::function<Array(const Arrays&)>;

struct Case {
  std::string name;
  Tensors inputs;  ///< f64, and i64 or bool where indices or conditions are meant: these are never converted
  Op op;
  Oracle oracle;
  /// The inputs of a float dtype are converted to each of these. Empty: everything is as it is.
  std::vector<DType> dtypes = {f64, f32, f16};
  bool gradients = true;  ///< compare gradients with the oracle's
  bool smooth = true;     ///< there are derivatives, which gradcheck can measure
  bool layouts = true;    ///< run with strided inputs, too
  bool repeats = true;    ///< ... those of stride 0 included, which makes elements equal
};

enum class Accuracy {
  bounded,      ///< within the oracle's error bound
  rounded_once  ///< the exact result, correctly rounded: one IEEE operation, or none at all
};
enum class Derivatives { none, once, any };

struct ErrorCase {
  std::string what;
  std::function<void()> call;  ///< must throw an Error that names the op
};

struct Entry {
  std::string name;
  Accuracy accuracy = Accuracy::bounded;
  Derivatives derivatives = Derivatives::any;
  std::vector<Case> cases;
  std::vector<ErrorCase> errors;

  /// Adds a case and returns it, for what is special about it.
  Case& add(std::string name, Tensors inputs, Op op, Oracle oracle);
  Case& add(std::string name, Tensors inputs, Op1 op, Oracle1 oracle);
  Entry& error(std::string what, std::function<void()> call);
};

/// All entries; made once.
const std::vector<Entry>& registry();

// Where they are made, one function per family.
void register_elementwise(std::vector<Entry>& entries);
void register_selection(std::vector<Entry>& entries);
void register_views(std::vector<Entry>& entries);
void register_reductions(std::vector<Entry>& entries);
void register_products(std::vector<Entry>& entries);
void register_windows(std::vector<Entry>& entries);
void register_indexing(std::vector<Entry>& entries);
void register_joins(std::vector<Entry>& entries);
void register_norms(std::vector<Entry>& entries);
void register_losses(std::vector<Entry>& entries);

/// Adds an entry with this name and returns it.
Entry& make_entry(std::vector<Entry>& entries, std::string name, Derivatives derivatives = Derivatives::any,
                  Accuracy accuracy = Accuracy::bounded);

// --- sample inputs: f64, the same for the same seed ---

/// Uniform in [low, high).
Tensor uniform(const Shape& shape, double low = -2, double high = 2, std::uint64_t seed = 1);
/// All different, at least `gap` apart, in random order around 0: nothing ties and no kink at 0 is near.
Tensor distinct(const Shape& shape, double gap = 0.125, std::uint64_t seed = 1);
/// Uniform i64 in [low, high).
Tensor integers(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed = 1);
/// Whole numbers from low to high, in any dtype; none below 0 for u8 and bool.
Tensor whole_numbers(const Shape& shape, double low, double high, DType dtype, std::uint64_t seed = 1);
/// Infinities, NaN, zeros of both signs, the limits of f16 (65504, 2^-14, 2^-24) and what is just beyond
/// them.
Tensor special_values();

/// How the inputs of a run lie in memory. The values are the same, but for `expanded`.
enum class Layout {
  plain,          // row-major
  transposed,     // the last two dimensions swapped
  sliced,         // every second element of a row
  channels_last,  // of rank 4
  expanded        // the first position of dimension 0, broadcast along it with stride 0
};
inline constexpr Layout kLayouts[] = {Layout::plain, Layout::transposed, Layout::sliced, Layout::channels_last,
                                      Layout::expanded};
const char* name_of(Layout layout);
/// Whether x would be different from plain in this layout.
bool applies(Layout layout, const Tensor& x);
/// x in this layout, by differentiable views and copies.
Tensor arrange_in(const Tensor& x, Layout layout);

// --- comparison ---

/// The elements of x as exact inputs of an oracle.
Array exact_inputs(const Tensor& x);

/// The results that are accepted, or NaN as both ends: NaN.
struct Interval {
  double low, high;
  bool holds(double x) const { return std::isnan(low) ? std::isnan(x) : low <= x && x <= high; }
};
/// The interval that oracle.h derives, `slack` times as wide (0: the correctly rounded value), in a dtype.
Interval accepted(const oracle::Approx& expected, DType dtype, double slack);

/// Empty when `found` has the shape and dtype of `expected`, and each of its elements is accepted; else
/// says what is wrong.
std::string mismatch(const Tensor& found, const Array& expected, double slack);

}  // namespace halfgrad::testing
