#pragma once

#include <string>
#include <typeinfo>

namespace halfgrad {

/// The name of a class without namespaces and template arguments: `class_name(typeid(*this))`.
std::string class_name(const std::type_info& type);

}  // namespace halfgrad
