#pragma once
// What the stand-ins for cuBLAS, cuBLASLt and cuDNN share. They take the arguments that the real ones take and refuse those
// that the real ones refuse; they compute with plain loops, in the order of the stream; and they notice what the real ones
// would punish silently: operands that reach beyond their memory, working memory that is too small or used by somebody else.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include "memory.h"
#include "report.h"
#include "stream.h"

namespace cuda_emulation {

enum class Number { half, single, twice };  // how it is kept
constexpr std::size_t size_of(Number type) { return type == Number::half ? 2 : type == Number::single ? 4 : 8; }
/// Numbers of this type are computed in C: double, or float for the others.
template <class F>
void in_compute_type(Number type, F&& f) {
  type == Number::twice ? f(double()) : f(float());
}

template <class C>
C read(Number type, const void* data, std::int64_t i) {
  if (type == Number::half) return static_cast<C>(__half2float(static_cast<const __half*>(data)[i]));
  if (type == Number::single) return static_cast<C>(static_cast<const float*>(data)[i]);
  return static_cast<C>(static_cast<const double*>(data)[i]);
}
template <class C>
void write(Number type, void* data, std::int64_t i, C value) {
  if (type == Number::half)
    static_cast<__half*>(data)[i] = __float2half_rn(static_cast<float>(value));
  else if (type == Number::single)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else
    static_cast<double*>(data)[i] = static_cast<double>(value);
}

/// y[i] = alpha * sum + beta * y[i], and what was there is not read when beta is 0. The scalars are read when the call is
/// made, as by a library whose scalars are on the host.
struct Blend {
  double alpha, beta;
  Blend(Number type, const void* alpha, const void* beta)
      : alpha(type == Number::twice ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha)),
        beta(type == Number::twice ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta)) {}
  template <class C>
  void operator()(Number type, void* y, std::int64_t i, C sum) const {
    C value = static_cast<C>(alpha) * sum;
    if (beta != 0) value += static_cast<C>(beta) * read<C>(type, y, i);
    write(type, y, i, value);
  }
};

/// The handles or descriptors of a kind that exist. One that does not is a fault.
template <class T>
class Existing {
 public:
  explicit Existing(const char* what) : what_(what) {}
  T* add(T* it) {
    all_.insert(it);
    return it;
  }
  T& checked(const T* it) const {
    if (!all_.contains(const_cast<T*>(it))) fault(std::string(what_) + " is used that does not exist");
    return *const_cast<T*>(it);
  }
  void remove(T* it) {
    checked(it);
    all_.erase(it);
    delete it;
  }

 private:
  const char* what_;
  std::set<T*> all_;
};

/// Faults unless `count` numbers from `data` on are in one block of device memory.
inline void check_operand(const char* call, const char* name, const void* data, Number type, std::int64_t count) {
  if (!is_in_a_block(data, static_cast<std::size_t>(count) * size_of(type)))
    fault(std::string(call) + ": " + name + " is not in device memory, or reaches beyond its block");
}

/// What a library leaves in its working memory: nothing that anybody should rely on.
inline void use_workspace(void* workspace, std::size_t bytes) {
  if (bytes > 0) std::memset(workspace, 0xFF, bytes < 4096 ? bytes : 4096);
}

/// Does the work of a call in the order of its stream.
template <class F>
void run_call(const char* call, cudaStream_t stream, F work) {
  enqueue(stream, [=] {
    const DeviceAccess access;
    work();
    check_margins(call);
  });
}

}  // namespace cuda_emulation
