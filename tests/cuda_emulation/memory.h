#pragma once
// The memory of the emulated GPU. Each block has pages of its own, the last of which nobody may touch, and lies as near to
// that one as its alignment allows. What is left of its pages, before and behind it, is a margin whose contents are known.
// Memory that was never written is NaN in every float type and -1 in the integers.
//
// All of it is closed to the program. A block that a kernel or a copy touches is opened by the signal that this gives, and
// closed again when it is done; anybody else's access is a fault.

#include <cstddef>
#include <string>

namespace cuda_emulation {

/// While one lives, this thread does what a GPU would do.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

inline constexpr std::size_t kCapacity = std::size_t{1} << 30;

/// A block of device memory, aligned to 256 bytes; null when kCapacity is exhausted.
void* allocate(std::size_t bytes);
/// Takes a block back; false when it is none. It stays closed for a while, so that late accesses are noticed.
bool release(void* address);
/// How many bytes are allocated.
std::size_t bytes_in_use();

bool is_device_memory(const void* address);
/// All of these bytes are in one block.
bool is_in_a_block(const void* address, std::size_t bytes);
/// Faults when a margin was written since blocks were last closed.
void check_margins(const std::string& writer);

}  // namespace cuda_emulation
