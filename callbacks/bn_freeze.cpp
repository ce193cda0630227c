#include "callbacks/bn_freeze.h"

#include "callbacks/learner.h"
#include "nn/norm.h"

namespace halfgrad {

void BnFreeze::on_batch_begin(Learner& learn) {
  if (!learn.state.train) return;
  learn.model().apply([](nn::Module& module) {
    if (auto* norm = dynamic_cast<nn::BatchNorm*>(&module)) norm->train(norm->num_parameters(true) > 0);
  });
}

}  // namespace halfgrad
