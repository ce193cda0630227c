#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/error.h"

namespace halfgrad {

namespace {

// Closes the file and removes it, unless it was put in its place.
struct TemporaryFile {
  std::string path;
  int descriptor = -1;
  bool kept = false;
  ~TemporaryFile() {
    if (descriptor >= 0) close(descriptor);
    if (!kept) unlink(path.c_str());
  }
};

}  // namespace

void write_file_atomically(const std::string& path, std::string_view contents) {
  const auto failed = [&](const char* what) { fail("'{}' was not written: {}: {}", path, what, std::strerror(errno)); };
  TemporaryFile file{.path = path + ".XXXXXX"};
  file.descriptor = mkstemp(file.path.data());
  if (file.descriptor < 0) {
    file.kept = true;  // there is nothing to remove
    failed("no file can be made in its folder");
  }
  while (!contents.empty()) {
    const ssize_t n = write(file.descriptor, contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) failed("writing stopped");
    contents.remove_prefix(static_cast<std::size_t>(n));
  }
  const mode_t mask = umask(0);
  umask(mask);
  if (fchmod(file.descriptor, 0666 & ~mask) != 0) failed("its permissions cannot be set");
  if (fsync(file.descriptor) != 0) failed("flushing it to the disk failed");
  if (std::rename(file.path.c_str(), path.c_str()) != 0) failed("it cannot be put in its place");
  file.kept = true;
  // The rename itself is on the disk once the folder is.
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY); descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
}

}  // namespace halfgrad
