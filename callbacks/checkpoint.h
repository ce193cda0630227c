#pragma once
// A training run at rest: what Learner::save writes to a file, and lr_find puts back.
//
//   tensors   "0.weight"                      the model's parameters and buffers, under their own names
//             "optimizer/0.weight/exp_avg"    the optimizer's state of a parameter; its f32 "master" too
//             "gradient/0.weight"             only while gradients are being accumulated
//             "callback/Recorder/losses"      what a callback keeps
//   metadata  "halfgrad.version"              of this format
//             "optimizer/0.weight/steps"      the numbers among the same states
//             "optimizer.0.group.1.lr"        hyperparameters of the groups of optimizer 0; "optimizer.0" is its name
//             "scaler.0.scale"                the loss scale of optimizer 0 and its counters; in mixed precision
//             "random.seed"                   the default generator
//             "run.epoch"                     where the run is; missing when none was begun

#include "engine/io/safetensors.h"

namespace halfgrad {

struct RunPosition;

struct Checkpoint : SafetensorsFile {};

/// Where the run was. Error when the checkpoint was not made in or after a run.
RunPosition position_of(const Checkpoint& checkpoint);

}  // namespace halfgrad
