#pragma once
// cuDNN: its handle, and how its descriptors are made. conv.cpp, batch_norm.cpp and pool.cpp call it.

#include <cudnn.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/cuda/allocator.h"
#include "engine/cuda/conv_plan.h"
#include "engine/cuda/libraries.h"
#include "engine/cuda/temporary.h"

namespace halfgrad::cuda {

/// A cuDNN handle on the stream of a backend, which one thread uses at a time.
class Dnn {
 public:
  explicit Dnn(cudaStream_t stream);

  /// f(handle)
  template <class F>
  auto with_handle(F&& f) {
    const std::lock_guard lock(mutex_);
    return f(handle_.get());
  }
  /// How a convolution is done; found when its form is first seen.
  std::shared_ptr<ConvPlan> plan(const ConvForm& form);
  /// Another plan for the form, since `failed` turned out not to be supported.
  void replace(const ConvForm& form, const std::shared_ptr<ConvPlan>& failed);

 private:
  std::mutex mutex_;
  Owned<cudnnHandle_t, cudnnDestroy> handle_;
  std::map<ConvForm, std::shared_ptr<ConvPlan>> plans_;
};

/// alpha = 1 and beta = 0 or 1 of y = alpha f(x) + beta y, in the type that cuDNN computes in.
class Factors {
 public:
  explicit Factors(DType dtype, bool add = false) : wide_(dtype == f64), beta_(add ? 1 : 0), wide_beta_(beta_) {}
  const void* alpha() const { return wide_ ? static_cast<const void*>(&wide_one_) : &one_; }
  const void* beta() const { return wide_ ? static_cast<const void*>(&wide_beta_) : &beta_; }

 private:
  bool wide_;
  float one_ = 1, beta_;
  double wide_one_ = 1, wide_beta_;
};

/// v itself, if it lies like `layout`, or a copy that does.
View in_layout(Backend& backend, const View& v, Layout layout, std::optional<Temporary>& memory);
/// Where a result is written that is to be v: v itself, or memory that is copied to it afterwards.
View room_for(Backend& backend, const View& v, Layout layout, std::optional<Temporary>& memory);

}  // namespace halfgrad::cuda
