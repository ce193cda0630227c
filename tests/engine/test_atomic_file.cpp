#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/error.h"
#include "engine/io/atomic_file.h"
#include "tests/files.h"

using namespace halfgrad;
namespace fs = std::filesystem;

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

TEST_CASE("a file written in pieces appears when it is committed, and not before") {
  Folder folder;
  const fs::path path = folder.path / "a.bin";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("one ");
    CHECK(contents(path) == "old");
    file.write({});
    file.write("two");
    file.commit();
    CHECK(contents(path) == "one two");
    CHECK(folder.files() == 1);
    CHECK_THROWS_WITH_AS(file.write("three"), doctest::Contains("a.bin' is in its place already"), Error);
    CHECK_THROWS_WITH_AS(file.commit(), doctest::Contains("a.bin' is in its place already"), Error);
  }
  CHECK(contents(path) == "one two");
}

TEST_CASE("a file that is given up leaves the old one and nothing else") {
  Folder folder;
  const fs::path path = folder.path / "a.bin";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
  }
  CHECK(contents(path) == "old");
  CHECK(folder.files() == 1);
}
