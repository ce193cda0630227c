#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/idx.h"
#include "engine/error.h"

using namespace halfgrad;
using data::read_idx;

namespace {

// A file of the given bytes that is gone with its test.
class TestFile {
 public:
  TestFile(const std::string& bytes, bool compress = false)
      : path_((std::filesystem::temp_directory_path() / ("halfgrad_idx_" + std::to_string(getpid()))).string()) {
    if (compress) {
      gzFile file = gzopen(path_.c_str(), "wb");
      REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
      REQUIRE(gzclose(file) == Z_OK);
    } else {
      std::ofstream(path_, std::ios::binary) << bytes;
    }
  }
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& path() const { return path_; }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string path_;
};

template <class T>
std::string big_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  if constexpr (std::endian::native == std::endian::little) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

std::string header(int type, const std::vector<std::uint32_t>& shape) {
  std::string bytes = {0, 0, static_cast<char>(type), static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape) bytes += big_endian(size);
  return bytes;
}

template <class T>
std::string idx(int type, const std::vector<std::uint32_t>& shape, const std::vector<T>& values) {
  std::string bytes = header(type, shape);
  for (const T value : values) bytes += big_endian(value);
  return bytes;
}

// The message with which reading fails; it always names the file.
std::string failure(const std::string& bytes, bool compress = false) {
  const TestFile file(bytes, compress);
  try {
    read_idx(file.path());
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(message.find(file.path()) != std::string::npos);
    return message;
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'" << text << "' lacks '" << part << "'");
  return found;
}

template <class T>
void check_round_trip(int type, DType dtype, const std::vector<T>& values) {
  for (const bool compress : {false, true}) {
    CAPTURE(type);
    CAPTURE(compress);
    const TestFile file(idx(type, {2, 1, 3}, values), compress);
    const Tensor x = read_idx(file.path());
    CHECK(x.shape() == Shape{2, 1, 3});
    CHECK(x.dtype() == dtype);
    CHECK(x.to_vector<double>() == std::vector<double>(values.begin(), values.end()));
  }
}

}  // namespace

TEST_CASE("every element type of IDX arrives exactly, plain and compressed") {
  check_round_trip<std::uint8_t>(0x08, u8, {0, 1, 127, 128, 254, 255});
  check_round_trip<std::int8_t>(0x09, i32, {0, 1, 127, -128, -1, 5});
  check_round_trip<std::int16_t>(0x0B, i32, {0, 258, 32767, -32768, -1, -2});
  check_round_trip<std::int32_t>(0x0C, i32, {0, 16909060, INT32_MAX, INT32_MIN, -1, -2});
  check_round_trip<float>(0x0D, f32, {0, 1.5f, -3.25e30f, 1e-45f, 0.1f, -1});
  check_round_trip<double>(0x0E, f64, {0, 1.5, -3.25e300, 5e-324, 0.1, -1});
}

TEST_CASE("an IDX array may have a dimension of size 0") {
  const TestFile file(header(0x08, {0, 28, 28}));
  CHECK(read_idx(file.path()).shape() == Shape{0, 28, 28});
}

TEST_CASE("an IDX array larger than a reading step arrives whole") {
  std::vector<std::uint8_t> values(3'000'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * i % 251);
  const TestFile file(idx(0x08, {3000, 1000}, values), true);
  CHECK(read_idx(file.path()).to_vector<std::uint8_t>() == values);
}

TEST_CASE("an IDX file that is missing, a folder or empty is a clear error") {
  CHECK_THROWS_WITH_AS(read_idx("/nowhere/train.idx"), doctest::Contains("'/nowhere/train.idx' (No such file"), Error);
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK_THROWS_WITH_AS(read_idx(folder), doctest::Contains("is a folder"), Error);
  CHECK(contains(failure(""), "is empty"));
  CHECK(contains(failure("", true), "is empty"));
}

TEST_CASE("a wrong IDX header is an error that says what was found and expected") {
  CHECK(contains(failure("abc"), "ends after 3 bytes"));
  CHECK(contains(failure("PK\x08\x01"), "begins with the bytes 50 4b; expected 00 00"));
  CHECK(contains(failure(header(0x0A, {1})), "element type 0a; expected 08"));
  CHECK(contains(failure(header(0x08, {})), "rank 0"));
  CHECK(contains(failure(header(0x08, {2, 3}).substr(0, 9)), "5 bytes of sizes, expected 8 for rank 2"));
}

TEST_CASE("an IDX header that promises more than there is takes no memory for it") {
  const std::uint32_t huge = UINT32_MAX;
  reset_peak_memory();
  const std::size_t before = memory_stats().peak;
  CHECK(contains(failure(header(0x08, {huge, 1000}) + "abc"), "takes 4294967295000 bytes, found 3"));
  CHECK(contains(failure(header(0x0E, {huge, huge})), "does not fit in 64 bits"));
  CHECK(contains(failure(header(0x08, {huge, huge, huge})), "does not fit in 64 bits"));
  CHECK(contains(failure(header(0x08, {0, huge, huge, huge})), "does not fit in 64 bits"));
  CHECK(memory_stats().peak == before);
}

TEST_CASE("an IDX file with too few or too many bytes is an error") {
  const std::string good = idx<std::int16_t>(0x0B, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (const bool compress : {false, true}) {
    CHECK(contains(failure(good.substr(0, good.size() - 1), compress), "takes 12 bytes, found 11"));
    CHECK(contains(failure(good + "x", compress), "goes on after its last element"));
  }
}

TEST_CASE("a damaged gzip file is an error wherever it is damaged or cut") {
  std::vector<std::uint8_t> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * i % 251);
  const std::string good = TestFile(idx(0x08, {5000}, values), true).bytes();
  REQUIRE(failure(good) == "no error");

  for (std::size_t length = 18; length < good.size(); length += 7) {
    CAPTURE(length);
    CHECK(contains(failure(good.substr(0, length)), "is damaged"));
  }
  CHECK(contains(failure(good.substr(0, good.size() - 1)), "unexpected end of file"));
  std::string wrong_sum = good;
  wrong_sum[good.size() - 8] ^= 1;  // the CRC is followed by four bytes of length
  CHECK(contains(failure(wrong_sum), "incorrect data check"));
  std::string wrong_length = good;
  wrong_length[good.size() - 1] ^= 1;
  CHECK(contains(failure(wrong_length), "incorrect length check"));
  std::string wrong_data = good;
  wrong_data[good.size() / 2] ^= 1;
  CHECK(contains(failure(wrong_data), "is damaged"));
}
