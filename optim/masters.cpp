// The f32 master weights: how they are made, where they lie in memory, and how they are taken back.

#include "optim/optimizer.h"

namespace halfgrad::optim {

void Optimizer::use_masters(bool flat) {
  const NoGrad guard;
  masters_ = true;
  flat_ = flat;
  for (ParamGroup& group : groups_) {
    for (Entry& entry : group.entries) {
      const bool trained = group.trainable && entry.param.requires_grad();
      if (trained && entry.param.dtype() == f16 && !entry.has_master())
        entry.master = entry.param.detach().contiguous().to(f32);
    }
    lay_out(group);
  }
}

// Moves the masters and their state into the group's flat vectors, or out of them when flat_ is off. The
// tensors stay the same ones: they are given other memory.
void Optimizer::lay_out(ParamGroup& group) {
  constexpr std::int64_t alignment = 64 / sizeof(float);
  std::vector<std::int64_t> offsets;
  std::int64_t size = 0;
  bool in_place = true;
  for (const Entry& entry : group.entries) {
    const bool member = flat_ && entry.has_master();
    offsets.push_back(member ? size : -1);
    if (member) size += (entry.master.numel() + alignment - 1) / alignment * alignment;
    in_place = in_place && entry.flat_offset == offsets.back();
  }
  if (in_place && size == (group.flat_master.defined() ? group.flat_master.numel() : 0)) return;

  group.flat_master = {};
  group.flat_state.clear();
  for (std::size_t i = 0; i < group.entries.size(); ++i) {
    Entry& entry = group.entries[i];
    const auto move_into = [&](Tensor& flat, Tensor& tensor) {
      if (!flat.defined()) flat = zeros({size}, f32, tensor.device());
      Tensor place = flat.narrow(0, offsets[i], tensor.numel()).view(tensor.shape());
      tensor.set_data(place.copy_(tensor));
    };
    if (offsets[i] >= 0) {
      move_into(group.flat_master, entry.master);
      for (auto& [name, tensor] : entry.state) move_into(group.flat_state[name], tensor);
    } else if (entry.flat_offset >= 0) {
      entry.master.set_data(entry.master.clone());
      for (auto& [name, tensor] : entry.state) tensor.set_data(tensor.clone());
    }
    entry.flat_offset = offsets[i];
  }
}

void Optimizer::drop_masters() {
  const NoGrad guard;
  masters_ = flat_ = false;
  for (ParamGroup& group : groups_) {
    lay_out(group);
    for (Entry& entry : group.entries) {
      if (entry.has_master()) entry.param.set_data(entry.master);
      entry.master = entry.param;
    }
  }
}

void Optimizer::sync_masters_from_params() {
  const NoGrad guard;
  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries)
      if (entry.has_master()) entry.master.copy_(entry.param);
}

void Optimizer::sync_params_from_masters() {
  const NoGrad guard;
  for (ParamGroup& group : groups_)
    for (Entry& entry : group.entries)
      if (entry.has_master()) entry.param.copy_(entry.master);
}

}  // namespace halfgrad::optim
