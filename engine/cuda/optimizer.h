#pragma once
// What the host says to the optimizer's kernels. optimizer.cpp makes it of views; optimizer.cu runs it.

#include <cstdint>

#include "engine/cuda/runtime.h"
#include "engine/dtype.h"
#include "engine/optimizer_rules.h"
#include "engine/step_control.h"

namespace halfgrad::cuda {

/// The elements that a block goes through.
inline constexpr std::int64_t kBlockElements = 8192;

/// One gradient, and the blocks that go through it: from `first_block` to that of the next one.
struct GradEntry {
  const void* grad;
  std::int64_t numel;
  unsigned first_block;
  int group;
  DType dtype;
  bool by_eight;  ///< all arrays of the entry can be moved eight elements at a time
};

/// One parameter beside its gradient; see OptimizerStep in engine/backend.h.
struct UpdateEntry : GradEntry {
  void *param, *master;
  void* state[2];
  const std::int64_t* steps;
  std::int64_t state_made_at;
  DType param_dtype, master_dtype;
};

/// As many entries as fit into a launch, which takes 32 KB of arguments.
template <class Entry>
struct EntryList {
  static constexpr int kMax = 256;
  int n = 0;
  unsigned blocks = 0;
  Entry at[kMax];
};
static_assert(sizeof(EntryList<UpdateEntry>) < 32000);

/// The sums of a block.
struct GradPartial {
  double sum_of_squares, non_finite;
  std::int64_t group;
};

/// Where the blocks of several launches put their sums together: the last block of all adds them up.
struct GradSums {
  GradPartial* partials;  ///< one for each block of all launches
  unsigned* done;         ///< blocks that are done; 0 before and after
  unsigned before;        ///< blocks of the launches before
  unsigned total;         ///< blocks of all launches
  GradStats* stats;
  int groups;
};
void grad_stats(const EntryList<GradEntry>&, const GradSums&, const Queue&);

struct CountList {
  static constexpr int kMax = 512;
  int n = 0;
  std::int64_t* at[kMax];
};
/// decide(), and counts the step.
void decide_step(GroupControl* control, int groups, const GradStats* stats, LossScaler* scaler, const StepRule& rule,
                 const double* loss, const CountList&, const Queue&);
/// Counts the step for more parameters, after decide_step().
void count_step(const GroupControl* control, const CountList&, const Queue&);

// All masters of a list have the same type: f64, or another (`in_double` says which).
void update(const EntryList<UpdateEntry>&, const GroupControl*, const rules::SgdConstants&, bool in_double,
            const Queue&);
void update(const EntryList<UpdateEntry>&, const GroupControl*, const rules::AdamConstants&, bool in_double,
            const Queue&);
void update(const EntryList<UpdateEntry>&, const GroupControl*, const rules::RmspropConstants&, bool in_double,
            const Queue&);

}  // namespace halfgrad::cuda
