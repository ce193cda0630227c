#include "engine/class_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace halfgrad {

std::string class_name(const std::type_info& type) {
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr),
                                                    std::free);
  std::string full = text ? text.get() : type.name();
  full.resize(std::min(full.size(), full.find('<')));
  const std::size_t scope = full.rfind("::");
  return scope == std::string::npos ? full : full.substr(scope + 2);
}

}  // namespace halfgrad
