#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/error.h"
#include "engine/io/atomic_file.h"

using namespace halfgrad;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = [] {
    std::string name = (fs::temp_directory_path() / "halfgrad-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    return fs::path(name);
  }();
  ~Folder() { fs::remove_all(path); }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), {})); }
};

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a file is written whole and replaced whole") {
  Folder folder;
  const fs::path file = folder.path / "a.bin";
  const std::string first("one\0two", 7);
  write_file_atomically(file, first);
  CHECK(contents(file) == first);
  const std::string large(3'000'000, 'x');
  write_file_atomically(file, large);
  CHECK(contents(file) == large);
  write_file_atomically(file, "");
  CHECK(contents(file).empty());
  CHECK(folder.files() == 1);
  struct stat info {};
  REQUIRE(stat(file.c_str(), &info) == 0);
  const mode_t mask = umask(0);
  umask(mask);
  CHECK((info.st_mode & 0777) == (0666 & ~mask));
}

TEST_CASE("a file that cannot be written is named, and nothing is left behind") {
  Folder folder;
  CHECK_THROWS_WITH_AS(write_file_atomically(folder.path / "no" / "such.bin", "x"),
                       doctest::Contains("such.bin' was not written"), Error);
  fs::create_directory(folder.path / "taken");
  CHECK_THROWS_WITH_AS(write_file_atomically(folder.path / "taken", "x"),
                       doctest::Contains("cannot be put in its place"), Error);
  CHECK(folder.files() == 1);
}
