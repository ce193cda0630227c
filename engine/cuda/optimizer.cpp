// Optimizer steps on the GPU: lists of parameters, as many as a launch takes.

#include "engine/cuda/optimizer.h"

#include <algorithm>

#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/elementwise.h"

namespace halfgrad {

namespace {

using cuda::EntryList;
using cuda::GradEntry;
using cuda::UpdateEntry;

bool is_by_eight(const View& view) {
  return !view || (cuda::moves_by_eight(view.dtype) &&
                   reinterpret_cast<std::uintptr_t>(view.data) % cuda::alignment_of_eight(view.dtype) == 0);
}

GradEntry entry_of(const View& grad, int group) {
  return {.grad = grad.data,
          .numel = grad.numel(),
          .first_block = 0,
          .group = group,
          .dtype = grad.dtype,
          .by_eight = is_by_eight(grad)};
}

UpdateEntry entry_of(const OptimizerStep& step) {
  UpdateEntry entry{entry_of(step.grad, step.group),
                    step.param.data,
                    step.master.data,
                    {step.state[0].data, step.state[1].data},
                    step.steps,
                    step.state_made_at,
                    step.param.dtype,
                    step.master.dtype};
  for (const View* view : {&step.param, &step.master, &step.state[0], &step.state[1]})
    entry.by_eight = entry.by_eight && is_by_eight(*view);
  return entry;
}

// Deals the entries that have elements into launches.
template <class Entry>
std::vector<EntryList<Entry>> lists_of(const std::vector<Entry>& entries) {
  std::vector<EntryList<Entry>> lists;
  for (Entry entry : entries) {
    if (entry.numel == 0) continue;
    if (lists.empty() || lists.back().n == EntryList<Entry>::kMax) lists.emplace_back();
    EntryList<Entry>& list = lists.back();
    entry.first_block = list.blocks;
    list.blocks += static_cast<unsigned>((entry.numel + cuda::kBlockElements - 1) / cuda::kBlockElements);
    list.at[list.n++] = entry;
  }
  return lists;
}

template <class Constants>
void update_all(std::span<const OptimizerStep> steps, const GroupControl* control, const Constants& constants,
                const cuda::Queue& queue) {
  for (const bool in_double : {false, true}) {
    std::vector<UpdateEntry> entries;
    for (const OptimizerStep& step : steps)
      if ((step.master.dtype == f64) == in_double) entries.push_back(entry_of(step));
    for (const EntryList<UpdateEntry>& list : lists_of(entries))
      cuda::update(list, control, constants, in_double, queue);
  }
}

}  // namespace

void CudaBackend::grad_stats(GradStats* stats, std::int64_t groups, std::span<const GroupedGrad> grads) {
  std::vector<GradEntry> entries;
  for (const GroupedGrad& grad : grads) entries.push_back(entry_of(grad.grad, grad.group));
  const std::vector<EntryList<GradEntry>> lists = lists_of(entries);
  unsigned total = 0;
  for (const EntryList<GradEntry>& list : lists) total += list.blocks;
  const cuda::Queue queue = this->queue();
  if (total == 0) {
    const auto bytes = static_cast<std::size_t>(groups) * sizeof(GradStats);
    HALFGRAD_CUDA(cudaMemsetAsync(stats, 0, bytes, queue.stream));
    return;
  }
  if (!blocks_done_) {
    blocks_done_.emplace(allocator_, device(), sizeof(unsigned));
    HALFGRAD_CUDA(cudaMemsetAsync(blocks_done_->data(), 0, sizeof(unsigned), queue.stream));
  }
  const Storage partials(allocator_, device(), total * sizeof(cuda::GradPartial));
  cuda::GradSums sums{.partials = static_cast<cuda::GradPartial*>(partials.data()),
                      .done = static_cast<unsigned*>(blocks_done_->data()),
                      .before = 0,
                      .total = total,
                      .stats = stats,
                      .groups = static_cast<int>(groups)};
  for (const EntryList<GradEntry>& list : lists) {
    cuda::grad_stats(list, sums, queue);
    sums.before += list.blocks;
  }
}

void CudaBackend::decide_step(GroupControl* control, std::int64_t groups, const GradStats* stats, LossScaler* scaler,
                              const StepRule& rule, const double* loss, std::span<std::int64_t* const> steps) {
  const cuda::Queue queue = this->queue();
  const auto counts_from = [&](std::size_t first) {
    cuda::CountList counts;
    while (first < steps.size() && counts.n < cuda::CountList::kMax) counts.at[counts.n++] = steps[first++];
    return counts;
  };
  cuda::decide_step(control, static_cast<int>(groups), stats, scaler, rule, loss, counts_from(0), queue);
  for (std::size_t i = cuda::CountList::kMax; i < steps.size(); i += cuda::CountList::kMax)
    cuda::count_step(control, counts_from(i), queue);
}

void CudaBackend::sgd_step(std::span<const OptimizerStep> steps, const GroupControl* control, double dampening,
                           bool nesterov) {
  update_all(steps, control, rules::SgdConstants{dampening, nesterov}, queue());
}

void CudaBackend::adam_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps,
                            bool decoupled) {
  update_all(steps, control, rules::AdamConstants{eps, decoupled}, queue());
}

void CudaBackend::rmsprop_step(std::span<const OptimizerStep> steps, const GroupControl* control, double eps) {
  update_all(steps, control, rules::RmspropConstants{eps}, queue());
}

}  // namespace halfgrad
