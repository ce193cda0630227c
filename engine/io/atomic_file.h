#pragma once

#include <string>
#include <string_view>

namespace halfgrad {

/// Writes a file so that at any moment, a crash included, `path` holds either all of its old contents or all of the
/// new: into a temporary file beside it, which is flushed to the disk and then renamed. Throws Error that names the
/// file.
void write_file_atomically(const std::string& path, std::string_view contents);

}  // namespace halfgrad
