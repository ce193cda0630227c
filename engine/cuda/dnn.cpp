#include "engine/cuda/dnn.h"

namespace halfgrad::cuda {

Dnn::Dnn(cudaStream_t stream) {
  cudnnHandle_t handle = nullptr;
  HALFGRAD_CUDNN(cudnnCreate(&handle));
  handle_.reset(handle);
  HALFGRAD_CUDNN(cudnnSetStream(handle, stream));
}

std::shared_ptr<ConvPlan> Dnn::plan(const ConvForm& form) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ConvPlan>& plan = plans_[form];
  if (!plan) plan = std::make_shared<ConvPlan>(make_plan(handle_.get(), form, 0));
  return plan;
}

void Dnn::replace(const ConvForm& form, const std::shared_ptr<ConvPlan>& failed) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ConvPlan>& plan = plans_[form];
  if (plan == failed) plan = std::make_shared<ConvPlan>(make_plan(handle_.get(), form, failed->number + 1));
}

View room_for(Backend& backend, const View& v, Layout layout, std::optional<Temporary>& memory) {
  if (lies_in(layout, v)) return v;
  return memory.emplace(backend, v.dtype, v.shape, strides_in(layout, v.shape)).view;
}

View in_layout(Backend& backend, const View& v, Layout layout, std::optional<Temporary>& memory) {
  const View room = room_for(backend, v, layout, memory);
  if (memory) backend.copy(room, v);
  return room;
}

}  // namespace halfgrad::cuda
