#pragma once
// Tensors that live for the length of a call.

#include "engine/backend.h"

namespace halfgrad::cuda {

/// Memory for a shape, undefined. It may go out of scope as soon as what uses it was launched: the allocator hands a block
/// out again to what runs next in the same stream.
struct Temporary {
  Storage memory;
  View view;

  /// `strides`: dense, in any order.
  Temporary(Backend& backend, DType dtype, const Shape& shape, const Strides& strides)
      : memory(backend.allocator(), backend.device(), static_cast<std::size_t>(shape.numel()) * size_of(dtype)),
        view{memory.data(), dtype, shape, strides, backend.device()} {}
};

}  // namespace halfgrad::cuda
