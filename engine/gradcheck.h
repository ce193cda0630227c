#pragma once
// Are the gradients of a function right? Two answers are compared: the one of backward(), and the slope that
// is measured by moving one input element at a time a little up and down.
//
//   CHECK(gradcheck([](const Tensors& x) { return matmul(x[0], x[1]); }, {a, b}).ok);
//
// A function with outputs y and inputs x is checked through one number, L = sum of r * y with random r:
// backward() gives dL/dx for all elements at once, and the slope of L along x_j is (L(x_j + eps) - L(x_j -
// eps)) / (2 eps), whose error shrinks with eps^2. A wrong entry of the Jacobian dy/dx shows in L, because no
// r that is drawn makes it vanish.

#include <functional>
#include <string>

#include "engine/tensor.h"

namespace halfgrad {

struct GradcheckOptions {
  double eps = 1e-6;   ///< how far an input element is moved
  double atol = 1e-6;  ///< accepted: |numeric - analytic| <= atol + rtol * |numeric|
  double rtol = 1e-5;
  std::uint64_t seed = 0;  ///< of r
};

/// What was found. `message` is empty when ok, else it tells the input, the element and both values of the
/// worst disagreement; those are in the fields, too.
struct GradcheckReport {
  bool ok = true;
  std::string message;
  std::size_t input = 0;     ///< which of the inputs
  std::int64_t element = 0;  ///< its position there, in row-major order
  double numeric = 0;
  double analytic = 0;

  explicit operator bool() const { return ok; }
};

using GradcheckFunction = std::function<Tensor(const Tensors&)>;
using GradcheckFunctions = std::function<Tensors(const Tensors&)>;  ///< of several outputs

/// Compares the gradients of f at `inputs`, of which it makes f64 copies: the inputs of a float dtype are
/// differentiated, others (indices, masks) are handed over as they are. f must do the same every time, and
/// have a derivative there: not a relu at 0. Outputs that do not depend on an input count as a gradient of 0.
/// Throws Error when an input is undefined, when no input is of a float dtype, and when f returns no float at
/// all or a float that is not f64.
GradcheckReport gradcheck(const GradcheckFunctions& f, const Tensors& inputs, const GradcheckOptions& options = {});
GradcheckReport gradcheck(const GradcheckFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

/// The same for the gradients of the gradients: gradcheck of (x, dy) -> dx, computed with create_graph.
GradcheckReport gradgradcheck(const GradcheckFunctions& f, const Tensors& inputs, const GradcheckOptions& options = {});
GradcheckReport gradgradcheck(const GradcheckFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace halfgrad
