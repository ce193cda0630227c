#pragma once

#include <string>

#include "engine/error.h"

namespace halfgrad {

/// Where a tensor's memory lives: `Device::cpu()` or `Device::cuda(index)`.
struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::cuda, index}; }
  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
  /// "cpu" or "cuda:N"
  std::string str() const;
};

/// "cpu", "cuda" or "cuda:N"; throws Error for anything else.
Device parse_device(const std::string& text);

}  // namespace halfgrad

template <>
struct fmt::formatter<halfgrad::Device> : halfgrad::TextFormatter {
  template <class Context>
  auto format(const halfgrad::Device& device, Context& context) const {
    return write(device.str(), context);
  }
};
