#pragma once
// Every failure that a caller can cause or cure is an Error whose text names the op or the file, says what was found,
// what was expected and what to do about it.

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace halfgrad {

/// Base of our types' formatters, so that the text of an error takes a shape or a tensor as it is, and a string is made of
/// it only when there is an error. No options between the braces.
struct TextFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  static auto write(const std::string& text, Context& context) {
    return std::copy(text.begin(), text.end(), context.out());
  }
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Throws Error with the formatted text: `fail("matmul: ... {} ...", x)`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with the formatted text unless `condition` holds.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(format, std::forward<Args>(args)...);
}

}  // namespace halfgrad
