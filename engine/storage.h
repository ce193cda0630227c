#pragma once
// The memory behind tensors: a reference-counted block from a caching allocator.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace halfgrad {

/// What an allocator counts. All in bytes, except the two numbers of calls.
struct MemoryStats {
  std::size_t live = 0;            ///< handed out and not yet returned
  std::size_t peak = 0;            ///< largest `live` since the start or the last reset_peak_memory()
  std::size_t cached = 0;          ///< returned, kept for the next request of the size class
  std::uint64_t requests = 0;      ///< blocks asked for
  std::uint64_t system_calls = 0;  ///< of those, the ones that the cache could not serve
};

/// The size that a caching allocator rounds a request up to: multiples of `unit` up to 2 KiB, then four classes per power
/// of two, so that at most a quarter is wasted. `unit` is a power of two up to 512.
constexpr std::size_t size_class(std::size_t bytes, std::size_t unit) {
  if (bytes <= 2048) return (bytes + unit - 1) / unit * unit;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

/// Hands out blocks aligned to 64 bytes. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Throws Error with the asked, live and cached bytes when memory is out. 0 bytes give nullptr.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  virtual void empty_cache() = 0;
};

/// A block of memory with its owner's reference count and a version: how often it was written in place.
class Storage {
 public:
  Storage(Allocator& allocator, Device device, std::size_t bytes)
      : allocator_(allocator), device_(device), bytes_(bytes), data_(allocator.allocate(bytes)) {}
  ~Storage() { allocator_.deallocate(data_, bytes_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint32_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  Allocator& allocator_;
  Device device_;
  std::size_t bytes_;
  void* data_;
  std::uint32_t version_ = 0;
};

using StoragePtr = std::shared_ptr<Storage>;

/// Counters of a device's allocator.
MemoryStats memory_stats(Device device = Device::cpu());
/// Sets `peak` to `live`.
void reset_peak_memory(Device device = Device::cpu());
/// Returns the cached blocks to the system.
void empty_cache(Device device = Device::cpu());

}  // namespace halfgrad
