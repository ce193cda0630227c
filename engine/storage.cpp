#include "engine/storage.h"

#include "engine/backend.h"

namespace halfgrad {

MemoryStats memory_stats(Device device) { return backend_for(device).allocator().stats(); }
void reset_peak_memory(Device device) { backend_for(device).allocator().reset_peak(); }
void empty_cache(Device device) { backend_for(device).allocator().empty_cache(); }

}  // namespace halfgrad
