#pragma once
// Optimizer: changes parameters along their gradients, and keeps the fp32 master weights of mixed precision.
//
// Why masters: a half has 11 significant bits. An update smaller than half the spacing of halves around w
// leaves w - lr*g rounded right back to w: training stands still although no gradient is zero. So the weight
// that is trained is an f32 copy, the *master*, in which small updates add up; the f16 *parameter*, which the
// model computes with, is the master rounded. For one parameter, step() is a single pass over memory:
//
//   param.grad (f16) --widen--> * grad_scale --> update of master and state (f32) --round to nearest even-->
//   param (f16)
//
// grad_scale undoes the loss scale and applies the clip factor. A parameter in f32 or f64 is its own master.
//
// Whether a step is taken, and with what grad_scale, is decided on the device, from gradients that the host has not seen:
// see engine/step_control.h.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/saved_state.h"
#include "engine/step_control.h"
#include "engine/tensor.h"
#include "optim/grad_scaler.h"

namespace halfgrad::optim {

/// All that belongs to one parameter. It stays with the parameter through freezing, re-grouping, to_fp16 and
/// to_fp32.
struct Entry {
  Tensor param;
  /// Row-major f32, or the same tensor as `param` when there is none.
  Tensor master;
  /// "momentum_buffer", "exp_avg", ... in the master's shape, made by the first step; f64 for f64, else f32.
  std::map<std::string, Tensor> state;
  /// Updates so far: i64, one number on the parameter's device, where steps are counted. See steps().
  Tensor step_count = {};
  /// The updates before the first state was made.
  std::int64_t state_made_at = -1;
  /// Where the master begins in the group's flat_master; -1 when it is not there.
  std::int64_t flat_offset = -1;

  bool has_master() const { return !master.is_same(param); }
  /// The number in step_count; on a GPU it waits for the steps that were asked for.
  std::int64_t steps() const { return step_count.defined() ? step_count.item<std::int64_t>() : 0; }
};

/// Parameters that share their hyperparameters, which schedules change between steps.
struct ParamGroup {
  std::vector<Entry> entries;
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;    ///< of SGD and RMSprop; beta1 of Adam
  double beta2 = 0;       ///< of Adam; alpha of RMSprop
  bool trainable = true;  ///< a frozen group is left alone by step()

  /// After use_masters(true): the group's masters, each from a multiple of 64 bytes on, and in the same
  /// places their state. 1-d, f32. The entries' tensors are views of these.
  Tensor flat_master;
  std::map<std::string, Tensor> flat_state;
};

/// What a caller says about a group; what is left out comes from the options of the optimizer.
struct GroupSpec {
  Tensors params;
  std::optional<double> lr = {}, weight_decay = {}, momentum = {}, beta2 = {};
  bool trainable = true;
};

using halfgrad::GradStats;

/// What happens to gradients on their way into a step.
struct StepOptions {
  /// Gradients are multiplied by it.
  double grad_scale = 1;
  /// Undoes this loss scale, skips the step when a gradient is inf or NaN, and moves the scale.
  GradScaler* scaler = nullptr;
  /// The largest L2 norm of the true gradients of each group, and then of all together.
  std::optional<double> clip_each = {}, clip = {};
  /// The step is skipped unless this number is finite; undefined: it does not matter.
  Tensor must_be_finite = {};
};

/// Of these gradients together; undefined ones are passed over.
GradStats stats_of(const Tensors& grads);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, in the groups that are trainable. The others are not
  /// touched: neither weight decay nor momentum moves them, and their state and step count stay. A skipped step changes
  /// nothing but the scaler. False when it was skipped, on a CPU; nothing waits for a GPU, which alone knows.
  bool step(const StepOptions& options = {});
  bool step(double grad_scale) { return step(StepOptions{.grad_scale = grad_scale}); }
  /// Writes the groups' hyperparameters to the device if they have changed. step() does so itself; a replayed CUDA graph of
  /// a step reads what is there.
  void write_hyperparameters();
  /// Drops all gradients. Their memory goes back to the allocator's cache, from where the next backward takes
  /// it again, and a parameter that the next batch does not reach has no gradient rather than one of zeros,
  /// so that step() leaves it alone. `set_to_none = false` fills with zeros instead.
  void zero_grad(bool set_to_none = true);

  /// One per group, of the gradients that step() would use. The sums add up to the global ones.
  std::vector<GradStats> grad_stats_by_group() const;
  GradStats grad_stats() const;

  std::vector<ParamGroup>& groups() { return groups_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  /// Deals the parameters into other groups. Masters and state follow their parameters; those of a parameter
  /// that is in no group any more are dropped.
  void regroup(const std::vector<GroupSpec>& specs);
  /// For all groups.
  void set_lr(double lr);

  // --- masters ---
  /// Gives an f32 master to each f16 parameter that is trained and has none, made from its present value;
  /// masters that exist stay as they are, so a second call changes nothing. `flat` puts the masters of a
  /// group, and their state, into one contiguous vector each; the numbers are the same bits in both layouts.
  void use_masters(bool flat = false);
  /// Gives each parameter the full precision of its master, which then is the parameter. State is kept.
  void drop_masters();
  /// After the parameters were changed by other means than step(), such as load_state_dict: master = param.
  void sync_masters_from_params();
  /// After the masters were changed by hand, such as by weight clamping: param = rounded master.
  void sync_params_from_masters();

  /// For a checkpoint; parameters are numbered through all groups. "3.exp_avg" and "3.master" are tensors, "3.steps",
  /// "group.0.lr" and the like numbers. Masters are there only where a parameter has one. Copies of everything, so that
  /// later steps do not change what was taken.
  SavedState state_dict() const;
  /// The counterpart. Throws Error, before anything has changed, when the state belongs to other parameters.
  /// A master in the state becomes the master of an f16 parameter, or the value of an f32 one; where the
  /// state has none and the parameter does, the master is made from the parameter.
  void load_state_dict(const SavedState& state);
  /// Throws the Error of load_state_dict() if there is one, and changes nothing.
  void check_state_dict(const SavedState& state) const;

  /// "SGD", "AdamW", ...
  const std::string& name() const { return name_; }

 protected:
  /// Throws Error for a parameter that is listed twice, is no leaf or not floating, and when there is none at
  /// all. `defaults` has no entries; it holds the hyperparameters that the specs leave out.
  Optimizer(std::string name, ParamGroup defaults, const std::vector<GroupSpec>& specs);

  /// The names of the state that a parameter of this group needs; "" for one that it does not.
  virtual std::array<std::string, 2> state_names(const ParamGroup& group) const = 0;
  /// One call of the seam: updates these parameters, with the states in the order of state_names().
  virtual void update(Backend& backend, std::span<const OptimizerStep> steps, const GroupControl* control) const = 0;

 private:
  ParamGroup make_group(const GroupSpec& spec) const;
  void lay_out(ParamGroup& group);
  /// An entry's state of that name; a new one is zero.
  Tensor& state(ParamGroup& group, Entry& entry, const std::string& name);

  // What a step is made of, in the order of step().
  void collect();
  void decide(const StepOptions& options);
  void make_state();
  void finish();

  std::string name_;
  ParamGroup defaults_;
  std::vector<ParamGroup> groups_;
  bool masters_ = false;  // use_masters() was called
  bool flat_ = false;

  // One parameter of the step that is being made.
  struct Stepped {
    std::size_t group;
    Entry* entry;
    Tensor param, master, grad;  // dense and row-major; copies where the originals are not
  };
  Device device_ = Device::cpu();  // of the parameters that have a gradient
  std::vector<Stepped> stepped_;
  std::vector<GroupControl> written_;  // what control_ holds of the hyperparameters
  Tensor control_;                     // u8: a GroupControl for each group
  Tensor stats_;                       // f64: a GradStats for each group
};

/// Makes the optimizer of a Learner once the model's layer groups are known.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(const std::vector<GroupSpec>&)>;

}  // namespace halfgrad::optim
