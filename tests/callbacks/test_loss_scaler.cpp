#include "training.h"

using namespace halfgrad;
using namespace halfgrad::test;

TEST_CASE("a dynamic scale doubles after max_noskip good steps in a row and halves at each overflow") {
  LossScaler scaler{.scale = 1024, .max_noskip = 3};
  scaler.step_taken();
  scaler.step_taken();
  CHECK(scaler.scale == 1024);
  CHECK(scaler.noskip == 2);
  scaler.step_taken();
  CHECK(scaler.scale == 2048);
  CHECK(scaler.noskip == 0);
  scaler.step_taken();
  scaler.step_skipped();  // starts the count of good steps again
  CHECK(scaler.scale == 1024);
  CHECK(scaler.noskip == 0);
  scaler.step_taken();
  scaler.step_taken();
  CHECK(scaler.scale == 1024);
  scaler.step_taken();
  CHECK(scaler.scale == 2048);
  CHECK(scaler.skipped == 1);
}

TEST_CASE("the scale stays between min_scale and max_scale") {
  LossScaler scaler{.scale = 3, .min_scale = 1, .max_scale = 10, .max_noskip = 1};
  for (int i = 0; i < 5; ++i) scaler.step_taken();
  CHECK(scaler.scale == 10);  // 3, 6, 10
  for (int i = 0; i < 4; ++i) scaler.step_skipped();
  CHECK(scaler.scale == 1);  // 5, 2.5, 1.25, 1
  CHECK(scaler.at_floor == 0);
  scaler.step_skipped();
  scaler.step_skipped();
  CHECK(scaler.scale == 1);
  CHECK(scaler.at_floor == 2);
  scaler.step_taken();
  CHECK(scaler.at_floor == 0);
  CHECK(scaler.skipped == 6);
}

TEST_CASE("a static scale never moves, and counts every skip as one at its floor") {
  LossScaler scaler{.scale = 512, .dynamic = false, .max_noskip = 1};
  for (int i = 0; i < 5; ++i) scaler.step_taken();
  scaler.step_skipped();
  scaler.step_skipped();
  CHECK(scaler.scale == 512);
  CHECK(scaler.skipped == 2);
  CHECK(scaler.at_floor == 2);
}

TEST_CASE("to_fp16: defaults, and options out of range") {
  CHECK(MixedPrecision().scaler().scale == 65536);
  CHECK(MixedPrecision({.dynamic = false}).scaler().scale == 512);
  CHECK(MixedPrecision({.loss_scale = 0.25, .dynamic = false}).scaler().scale == 0.25);
  CHECK_THROWS_AS(MixedPrecision({.loss_scale = 0}), Error);
  CHECK_THROWS_AS(MixedPrecision({.loss_scale = -2, .dynamic = false}), Error);
  CHECK_THROWS_AS(MixedPrecision({.loss_scale = NAN}), Error);
  CHECK_THROWS_AS(MixedPrecision({.loss_scale = 33554432.0}), Error);
  CHECK_THROWS_AS(MixedPrecision({.loss_scale = 0.5}), Error);
  CHECK_THROWS_AS(MixedPrecision({.max_noskip = 0}), Error);
  CHECK_THROWS_AS(MixedPrecision({.clip = 0}), Error);
  CHECK_THROWS_AS(MixedPrecision({.max_scale = 2, .min_scale = 4}), Error);

  nn::Sequential model = small_mlp();
  Learner learn(small_data(), model, nn::cross_entropy, {.silent = true});
  CHECK_THROWS_AS(learn.to_fp16({.clip = -1}), Error);
  CHECK(learn.mixed_precision() == nullptr);  // and nothing has changed
  CHECK(model.dtype() == f32);
}
