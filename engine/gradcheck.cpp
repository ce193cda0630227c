#include "engine/gradcheck.h"

#include <cmath>

#include "engine/autograd.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/random.h"

namespace halfgrad {

namespace {

Tensor random_like(const Tensor& x, Generator& generator) {
  std::vector<double> values(static_cast<std::size_t>(x.numel()));
  for (double& v : values) v = 2 * generator.next_uniform() - 1;
  return from_vector(values, x.shape()).to(x.device());
}

// Row-major f64 copies of the float inputs, as leaves; the others as they are.
Tensors leaves(const Tensors& inputs, const char* name) {
  Tensors x;
  bool any = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].defined(), "{}: input {} is undefined", name, i);
    x.push_back(inputs[i].detach());
    if (!is_floating(x[i].dtype())) continue;
    x[i] = empty(inputs[i].shape(), f64, inputs[i].device()).copy_(x[i]).requires_grad_();
    any = true;
  }
  check(any, "{}: none of the {} inputs is of a float dtype, so there is nothing to differentiate", name,
        inputs.size());
  return x;
}

// The float outputs of f.
Tensors outputs(const GradcheckFunctions& f, const Tensors& x, const char* name) {
  Tensors y;
  for (const Tensor& output : f(x)) {
    check(output.defined(), "{}: the function returned an undefined tensor", name);
    if (!is_floating(output.dtype())) continue;
    check(output.dtype() == f64,
          "{}: the function returned {} for f64 inputs; expected f64, since the slope of anything less "
          "precise cannot be measured",
          name, name_of(output.dtype()));
    y.push_back(output);
  }
  check(!y.empty(), "{}: the function returned no tensor of a float dtype", name);
  return y;
}

Tensor weighted_sum(const Tensors& y, const Tensors& r) {
  Tensor total = zeros({}, f64, y[0].device());
  for (std::size_t i = 0; i < y.size(); ++i) total = total + sum(y[i] * r[i]);
  return total;
}

void set_element(const Tensor& x, std::int64_t element, double value) {
  NoGrad guard;
  x.view({-1})[element].fill_(value);
}

std::string position(const Tensor& x, std::int64_t element) {
  Shape index(x.shape().size(), 0);
  for (std::size_t d = x.shape().size(); d-- > 0; element /= x.shape()[d]) index[d] = element % x.shape()[d];
  return index.str();
}

GradcheckReport compare(const GradcheckFunctions& f, const Tensors& inputs, const GradcheckOptions& options,
                        const char* name) {
  check(options.eps > 0, "{}: eps is {}; expected a positive number", name, options.eps);
  const Tensors x = leaves(inputs, name);
  Generator generator(options.seed);
  const Tensors y = outputs(f, x, name);
  Tensors r, wanted;
  for (const Tensor& output : y) r.push_back(random_like(output, generator));
  for (const Tensor& input : x)
    if (input.requires_grad()) wanted.push_back(input);

  const Tensor loss = weighted_sum(y, r);
  const Tensors gradients = loss.requires_grad() ? grad(loss, wanted) : Tensors(wanted.size());

  GradcheckReport report;
  double worst = 1;  // the error in units of what is accepted
  std::size_t k = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!x[i].requires_grad()) continue;
    const Tensor& gradient = gradients[k++];
    const std::vector<double> values = x[i].to_vector<double>();
    const std::vector<double> analytic =
        gradient.defined() ? gradient.to_vector<double>() : std::vector<double>(values.size());
    for (std::size_t j = 0; j < values.size(); ++j) {
      const auto loss_at = [&](double value) {
        set_element(x[i], static_cast<std::int64_t>(j), value);
        return weighted_sum(outputs(f, x, name), r).item();
      };
      const double high = values[j] + options.eps, low = values[j] - options.eps;
      const double numeric = (loss_at(high) - loss_at(low)) / (high - low);
      set_element(x[i], static_cast<std::int64_t>(j), values[j]);
      const double error = std::abs(numeric - analytic[j]) / (options.atol + options.rtol * std::abs(numeric));
      if (error <= worst) continue;  // a NaN goes on, and is the worst of all
      worst = std::isnan(error) ? INFINITY : error;
      report = {false, "", i, static_cast<std::int64_t>(j), numeric, analytic[j]};
    }
  }
  if (!report.ok)
    report.message =
        fmt::format("{}: the gradient of element {} of input {} {} is {:.10g}, but the measured slope is {:.10g}", name,
                    position(x[report.input], report.element), report.input, x[report.input].shape().str(),
                    report.analytic, report.numeric);
  return report;
}

GradcheckFunctions several(const GradcheckFunction& f) {
  return [f](const Tensors& x) { return Tensors{f(x)}; };
}

}  // namespace

GradcheckReport gradcheck(const GradcheckFunctions& f, const Tensors& inputs, const GradcheckOptions& options) {
  return compare(f, inputs, options, "gradcheck");
}

GradcheckReport gradgradcheck(const GradcheckFunctions& f, const Tensors& inputs, const GradcheckOptions& options) {
  const char* name = "gradgradcheck";
  // The function that is checked takes x and then one dy for each output, and returns every dx.
  Generator generator(options.seed + 1);
  Tensors arguments = inputs;
  for (const Tensor& y : outputs(f, leaves(inputs, name), name)) arguments.push_back(random_like(y, generator));
  const auto gradients = [&f, name, n = inputs.size()](const Tensors& arguments) {
    const auto end_of_x = arguments.begin() + static_cast<std::ptrdiff_t>(n);
    const Tensors x(arguments.begin(), end_of_x), dy(end_of_x, arguments.end());
    Tensors wanted;
    for (const Tensor& input : x)
      if (input.requires_grad()) wanted.push_back(input);
    Tensors dx = grad(weighted_sum(outputs(f, x, name), dy), wanted, {}, /*retain_graph=*/true, /*create_graph=*/true);
    for (std::size_t i = 0; i < dx.size(); ++i)
      if (!dx[i].defined()) dx[i] = zeros_like(wanted[i]);
    return dx;
  };
  return compare(gradients, arguments, options, name);
}

GradcheckReport gradcheck(const GradcheckFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  return gradcheck(several(f), inputs, options);
}
GradcheckReport gradgradcheck(const GradcheckFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  return gradgradcheck(several(f), inputs, options);
}

}  // namespace halfgrad
