// Optimizer steps on the GPU: three launches for all parameters together, statistics, decision and update. What a step is,
// is in engine/step_control.h and engine/optimizer_rules.h.

#include "engine/cuda/optimizer.h"

#include "engine/cuda/group.cuh"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/numbers.cuh"

namespace halfgrad::cuda {

namespace {

// The entry that this block goes through.
template <class Entry>
__device__ const Entry& entry_of_block(const EntryList<Entry>& list) {
  int low = 0, high = list.n;  // the last that begins at this block or before
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (list.at[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  return list.at[low];
}

// Calls f(begin, n) with the part of an entry that is this block's.
struct Part {
  std::int64_t begin;
  std::uint32_t n;
};
__device__ Part part_of_block(const GradEntry& entry) {
  const std::int64_t begin = (blockIdx.x - entry.first_block) * kBlockElements, left = entry.numel - begin;
  return {begin, static_cast<std::uint32_t>(left < kBlockElements ? left : kBlockElements)};
}

template <class T>
__device__ T* advance(T* data, DType dtype, std::int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

// --- statistics ------------------------------------------------------------------------------------------------------

struct Sums {
  double squares = 0, non_finite = 0;
  __device__ void add(double g) {
    squares += g * g;
    non_finite += g - g == 0 ? 0 : 1;
  }
};

__global__ void __launch_bounds__(kThreads)
    grad_stats_kernel(const __grid_constant__ EntryList<GradEntry> list, GradSums all) {
  const GradEntry& entry = entry_of_block(list);
  const auto [begin, n] = part_of_block(entry);
  const void* const grad = advance(entry.grad, entry.dtype, begin);
  Sums sums;
  std::uint32_t first = threadIdx.x;
  if (entry.by_eight) {
    for (std::uint32_t i = threadIdx.x; i < n / kEight; i += kThreads) {
      float g[kEight];
      load_eight(grad, entry.dtype, i, g);
#pragma unroll
      for (std::uint32_t k = 0; k < kEight; ++k) sums.add(g[k]);
    }
    first += n / kEight * kEight;
  }
  for (std::uint32_t i = first; i < n; i += kThreads) sums.add(load<double>(grad, entry.dtype, i));

  HALFGRAD_SHARED(bool, is_last, 1);
  const double squares = sum_of_group(sums.squares), non_finite = sum_of_group(sums.non_finite);
  if (threadIdx.x == 0) {
    all.partials[all.before + blockIdx.x] = {squares, non_finite, entry.group};
    __threadfence();  // the others see the partial before they see the count
    *is_last = atomicAdd(all.done, 1U) == all.total - 1;
  }
  __syncthreads();
  if (!*is_last) return;
  __threadfence();
  for (int group = 0; group < all.groups; ++group) {
    Sums total;
    for (unsigned b = threadIdx.x; b < all.total; b += kThreads) {
      const GradPartial partial = all.partials[b];
      if (partial.group != group) continue;
      total.squares += partial.sum_of_squares;
      total.non_finite += partial.non_finite;
    }
    total.squares = sum_of_group(total.squares);
    total.non_finite = sum_of_group(total.non_finite);
    if (threadIdx.x == 0) all.stats[group] = {total.squares, total.non_finite};
  }
  if (threadIdx.x == 0) *all.done = 0;
}

// --- the decision ----------------------------------------------------------------------------------------------------

__device__ void count(const GroupControl* control, const CountList& counts) {
  if (control[0].skip != 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < counts.n; i += static_cast<int>(blockDim.x)) ++*counts.at[i];
}

__global__ void decide_kernel(GroupControl* control, int groups, const GradStats* stats, LossScaler* scaler,
                              StepRule rule, const double* loss, const __grid_constant__ CountList counts) {
  if (threadIdx.x == 0) decide(control, groups, stats, scaler, rule, loss, [](double x) { return std::sqrt(x); });
  __syncthreads();
  count(control, counts);
}

__global__ void count_kernel(const GroupControl* control, const __grid_constant__ CountList counts) {
  count(control, counts);
}

// --- the update ------------------------------------------------------------------------------------------------------

template <template <class> class Rule, class C, class Constants>
__global__ void __launch_bounds__(kThreads, 1)  // or it spills the registers of Adam
    update_kernel(const __grid_constant__ EntryList<UpdateEntry> list, const GroupControl* control,
                  Constants constants) {
  const UpdateEntry& entry = entry_of_block(list);
  const GroupControl& group = control[entry.group];
  if (group.skip != 0) return;

  // One thread makes the rule, which takes powers of double.
  HALFGRAD_SHARED(double, memory, (sizeof(Rule<C>) + sizeof(double) - 1) / sizeof(double));
  if (threadIdx.x == 0) {
    const std::int64_t t = *entry.steps;
    const Rule<C> made(group, constants, {t, t == entry.state_made_at + 1});
    __builtin_memcpy(memory, &made, sizeof(made));
  }
  __syncthreads();
  const Rule<C>& rule = *reinterpret_cast<const Rule<C>*>(memory);
  const auto root = [](C x) { return std::sqrt(x); };
  const C grad_scale = static_cast<C>(group.grad_scale);
  constexpr DType kState = std::is_same_v<C, double> ? f64 : f32;

  const auto [begin, n] = part_of_block(entry);
  const void* const grad = advance(entry.grad, entry.dtype, begin);
  void* const master = advance(entry.master, entry.master_dtype, begin);
  void* const param = entry.param == entry.master ? nullptr : advance(entry.param, entry.param_dtype, begin);
  void* const state0 = entry.state[0] ? advance(entry.state[0], kState, begin) : nullptr;
  void* const state1 = entry.state[1] ? advance(entry.state[1], kState, begin) : nullptr;

  std::uint32_t first = threadIdx.x;
  if constexpr (std::is_same_v<C, float>) {
    if (entry.by_eight) {
      for (std::uint32_t i = threadIdx.x; i < n / kEight; i += kThreads) {
        float g[kEight], w[kEight], s0[kEight] = {}, s1[kEight] = {};
        load_eight(grad, entry.dtype, i, g);
        load_eight(master, entry.master_dtype, i, w);
        if (state0) load_eight(state0, kState, i, s0);
        if (state1) load_eight(state1, kState, i, s1);
#pragma unroll
        for (std::uint32_t k = 0; k < kEight; ++k) {
          float s[2] = {s0[k], s1[k]};
          w[k] = rule(w[k], g[k] * grad_scale, s, root);
          s0[k] = s[0];
          s1[k] = s[1];
        }
        if (state0) store_eight(state0, kState, i, s0);
        if (state1) store_eight(state1, kState, i, s1);
        store_eight(master, entry.master_dtype, i, w);
        if (param) store_eight(param, entry.param_dtype, i, w);
      }
      first += n / kEight * kEight;
    }
  }
  for (std::uint32_t i = first; i < n; i += kThreads) {
    C s[2] = {state0 ? load<C>(state0, kState, i) : C(0), state1 ? load<C>(state1, kState, i) : C(0)};
    const C w = rule(load<C>(master, entry.master_dtype, i), load<C>(grad, entry.dtype, i) * grad_scale, s, root);
    if (state0) store(state0, kState, i, s[0]);
    if (state1) store(state1, kState, i, s[1]);
    store(master, entry.master_dtype, i, w);
    if (param) store(param, entry.param_dtype, i, w);
  }
}

template <template <class> class Rule, class Constants>
void run(const char* name, const EntryList<UpdateEntry>& list, const GroupControl* control, const Constants& constants,
         bool in_double, const Queue& queue) {
  const auto kernel = in_double ? update_kernel<Rule, double, Constants> : update_kernel<Rule, float, Constants>;
  launch(name, kernel, dim3(list.blocks), kThreads, queue.stream, list, control, constants);
}

}  // namespace

void grad_stats(const EntryList<GradEntry>& list, const GradSums& sums, const Queue& queue) {
  launch("grad_stats", grad_stats_kernel, dim3(list.blocks), kThreads, queue.stream, list, sums);
}

void decide_step(GroupControl* control, int groups, const GradStats* stats, LossScaler* scaler, const StepRule& rule,
                 const double* loss, const CountList& counts, const Queue& queue) {
  launch("decide_step", decide_kernel, dim3(1), kThreads, queue.stream, control, groups, stats, scaler, rule, loss,
         counts);
}

void count_step(const GroupControl* control, const CountList& counts, const Queue& queue) {
  launch("count_step", count_kernel, dim3(1), kThreads, queue.stream, control, counts);
}

void update(const EntryList<UpdateEntry>& list, const GroupControl* control, const rules::SgdConstants& constants,
            bool in_double, const Queue& queue) {
  run<rules::SgdRule>("sgd_step", list, control, constants, in_double, queue);
}
void update(const EntryList<UpdateEntry>& list, const GroupControl* control, const rules::AdamConstants& constants,
            bool in_double, const Queue& queue) {
  run<rules::AdamRule>("adam_step", list, control, constants, in_double, queue);
}
void update(const EntryList<UpdateEntry>& list, const GroupControl* control, const rules::RmspropConstants& constants,
            bool in_double, const Queue& queue) {
  run<rules::RmspropRule>("rmsprop_step", list, control, constants, in_double, queue);
}

}  // namespace halfgrad::cuda
