#pragma once
// One run of a case of the registry: in a dtype, in a layout, on a device.

#include <string>
#include <vector>

#include "tests/ops/registry.h"

namespace halfgrad::testing {

struct Run {
  const Entry& entry;
  const Case& c;
  DType dtype;  ///< of the inputs that are floating, unless the case names no dtypes
  Layout layout;
  Device device = Device::cpu();
};
/// The run in words.
std::string name_of(const Run& run);
std::string title(const Entry& entry, const Case& c, Layout layout);

/// The memory layouts in which a case is run: those that make a difference for one of its inputs.
std::vector<Layout> layouts_of(const Case& c);
/// The dtypes in which a case is run; one of no meaning when everything is as given.
std::vector<DType> dtypes_of(const Case& c);

/// An op may compute the same by another formula than the oracle, with its roundings in other places; and in f64 the
/// oracle's own errors are as large as those of the op. So its bounds are taken twice as wide.
inline constexpr double kSlack = 2;

/// The inputs of a run, as leaves.
Tensors inputs_of(const Run& run, bool requires_grad);

/// Short numbers that are exact in f16.
std::vector<double> random_gradient(std::size_t n);

/// What the oracle says about a run: the values of each output, and from random_gradient() of each output the gradients of
/// the inputs that require one, with the bounds of their errors.
struct Expected {
  Arrays values;
  std::vector<Arrays> gradients;
};
Expected expected_of(const Run& run, const Tensors& inputs, bool gradients);

/// Runs the op and compares its values with the oracle's, and its gradients, too, if they are wanted. Checks with doctest;
/// an Error of the op passes through.
void check_run(const Run& run, bool gradients);

}  // namespace halfgrad::testing
