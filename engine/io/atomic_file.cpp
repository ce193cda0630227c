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

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".XXXXXX"), descriptor_(mkstemp(temporary_.data())) {
  if (descriptor_ < 0) fail_because("no file can be made in its folder");
}

AtomicFile::~AtomicFile() {
  close(descriptor_);
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
  const mode_t mask = umask(0);
  umask(mask);
  if (fchmod(descriptor_, 0666 & ~mask) != 0) fail_because("its permissions cannot be set");
  if (fsync(descriptor_) != 0) fail_because("flushing it to the disk failed");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_because("it cannot be put in its place");
  temporary_.clear();
  // The rename itself is on the disk once the folder is.
  const std::size_t slash = path_.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  if (const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY); descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
}

void AtomicFile::check_open() const {
  check(!temporary_.empty(), "'{}' is in its place already; nothing more can be written to it", path_);
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
