#pragma once

#include <string>
#include <string_view>

namespace halfgrad {

/// A file that is written piece by piece, and so that at any moment, a crash included, `path` holds either all of its
/// old contents or all of the new: the pieces go into a temporary file in its folder, which commit() flushes to the disk
/// and renames. Destroyed without commit(), it leaves `path` as it was. Every member throws Error that names the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  /// Puts the file in its place. Nothing more can be written.
  void commit();

 private:
  void check_open() const;
  [[noreturn]] void fail_because(const char* what) const;
  void name_it();

  std::string path_;
  std::string temporary_;  // its name until it is in its place; empty while it has none
  int descriptor_ = -1;    // -1 once it is in its place
};

/// The same for contents that are in memory as a whole.
void write_file_atomically(const std::string& path, std::string_view contents);

}  // namespace halfgrad
