#pragma once
// Files for tests that write some.

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace halfgrad {

// An empty folder that is gone with its test.
struct Folder {
  std::filesystem::path path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "halfgrad-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    return std::filesystem::path(name);
  }();
  Folder() = default;
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.is_open());
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace halfgrad
