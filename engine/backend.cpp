#include "engine/backend.h"

#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/cuda.h"

namespace halfgrad {

Backend& backend_for(Device device) {
  if (device.is_cpu()) return cpu::backend();
  return cuda::backend(device.index);
}

}  // namespace halfgrad
