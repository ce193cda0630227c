#include "nn/loss.h"

#include <functional>

#include "engine/ops/elementwise.h"
#include "tests/nn/expect.h"

using namespace halfgrad;
using namespace halfgrad::testing;

TEST_CASE("losses are values that a training loop can hold, with their options") {
  const Tensor x = tensor({{1, 2, 0}}), t = tensor({1}, i64);
  std::function<Tensor(const Tensor&, const Tensor&)> loss = nn::cross_entropy;
  check_values(loss(x, t), {cross_entropy(x, t).item()});
  loss = nn::CrossEntropyLoss({.label_smoothing = 0.5});
  check_values(loss(x, t), {cross_entropy(x, t, {.label_smoothing = 0.5}).item()});
  loss = nn::mse_loss;
  check_values(loss(x, x + 2), {4});
  loss = nn::MseLoss({.reduction = Reduction::sum});
  check_values(loss(x, x + 2), {12});
  check_values(nn::l1_loss(x, x + 2), {2});
  check_values(nn::smooth_l1_loss(x, x + 2), {1.5});
  check_values(nn::NllLoss({.reduction = Reduction::sum})(x, t), {-2});
  check_values(nn::nll_loss(x, t), {-2});
  check_values(nn::binary_cross_entropy_with_logits(zeros({1}), ones({1})), {0.693147}, 1e-6);
}
