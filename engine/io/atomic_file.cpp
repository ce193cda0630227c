#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/error.h"

namespace halfgrad {

namespace {
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}
}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
#if defined(O_TMPFILE)
  // Where the file system can, a file without a name: nothing is left of it when the program is killed.
  if (access("/proc/self/fd", X_OK) == 0) descriptor_ = open(folder_of(path_).c_str(), O_TMPFILE | O_WRONLY, 0666);
  if (descriptor_ >= 0) return;
#endif
  temporary_ = path_ + ".XXXXXX";
  descriptor_ = mkstemp(temporary_.data());
  if (descriptor_ < 0) {
    temporary_.clear();
    fail_because("no file can be made in its folder");
  }
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(descriptor_, 0666 & ~mask);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  check_open();
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_because("writing stopped");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  check_open();
  if (fsync(descriptor_) != 0) fail_because("flushing it to the disk failed");
  if (temporary_.empty()) name_it();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_because("it cannot be put in its place");
  temporary_.clear();
  close(std::exchange(descriptor_, -1));
  // The rename itself is on the disk once the folder is.
  if (const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY); folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

// rename() can replace a file, linkat() cannot: so a file without a name is given a temporary one first.
void AtomicFile::name_it() {
  const std::string unnamed = "/proc/self/fd/" + std::to_string(descriptor_);
  for (unsigned number = 0;; ++number) {
    const std::string name = path_ + "." + std::to_string(getpid()) + "." + std::to_string(number);
    if (linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) fail_because("it cannot be given a name");
  }
}

void AtomicFile::check_open() const {
  check(descriptor_ >= 0, "'{}' is in its place already; nothing more can be written to it", path_);
}

void AtomicFile::fail_because(const char* what) const {
  fail("'{}' was not written: {}: {}", path_, what, std::strerror(errno));
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

}  // namespace halfgrad
