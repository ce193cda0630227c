#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/error.h"
#include "engine/io/safetensors.h"
#include "engine/ops/elementwise.h"
#include "tests/files.h"

using namespace halfgrad;
using namespace std::string_literals;
namespace fs = std::filesystem;

namespace {

using NamedTensors = std::map<std::string, Tensor>;

// The bytes of a row-major tensor, so that -0 differs from 0 and a NaN equals itself.
std::string bits(const Tensor& x) {
  REQUIRE(x.is_contiguous());
  return x.numel() == 0 ? ""s
                        : std::string(static_cast<const char*>(x.raw_data()),
                                      static_cast<std::size_t>(x.numel()) * size_of(x.dtype()));
}

// A tensor of `dtype` whose elements have the given bits.
template <class Bits>
Tensor from_bits(const std::vector<Bits>& values, DType dtype, const Shape& shape) {
  REQUIRE(sizeof(Bits) == size_of(dtype));
  return from_host(values.data(), static_cast<std::int64_t>(values.size()), dtype, shape);
}

Tensor round_trip(const Tensor& x) {
  const Folder folder;
  const std::string path = folder.path / "x.safetensors";
  save_safetensors(path, {{"x", x}});
  const SafetensorsFile file = load_safetensors(path);
  REQUIRE(file.tensors.size() == 1);
  REQUIRE(file.tensors.contains("x"));
  CHECK(file.metadata.empty());
  const Tensor y = file.tensors.at("x");
  CHECK(y.shape() == x.shape());
  CHECK(y.dtype() == x.dtype());
  CHECK(y.is_contiguous());
  return y;
}

// Quickly: a file that is replaced waits for the disk on some file systems, a new one does not.
void write(const std::string& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  REQUIRE(out.flush().good());
}

// A file of any header, honest or not, and any data.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof(bytes)) + header + data;
}

// The message with which loading `bytes` fails; it always names the file.
std::string failure(const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.path / "bad.safetensors";
  write(path, bytes);
  try {
    load_safetensors(path);
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::string prefix = "load_safetensors: '" + path + "': ";
    CHECK(message.starts_with(prefix));
    return message.substr(prefix.size());
  }
  return "no error";
}

// A header of one tensor.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

NamedTensors small_model() {
  return {{"a.weight", from_vector<float>({1, -2, 3, 4, 5, 6.5f}, {2, 3})},
          {"a.bias", from_vector<half>({half(1.0f), half(-0.5f)})},
          {"mask", from_vector<bool>({true, false, true})},
          {"steps", from_vector<std::int64_t>({7}, {})}};
}

}  // namespace

// --- the layout ------------------------------------------------------------------------------------------------------

TEST_CASE("a safetensors file has the published layout, byte by byte") {
  const Folder folder;
  const std::string path = folder.path / "layout.safetensors";
  save_safetensors(path,
                   {{"b.weight", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                    {"b.bias", from_vector<float>({-1})},
                    {"a", from_vector<std::int64_t>({1, -2})},
                    {"h", from_vector<half>({half(1.5f)}, {})},
                    {"\u00e9\"\n", from_vector<bool>({true, false})},
                    {"u", from_vector<std::uint8_t>({}, {0, 3})},
                    {"d", from_vector<double>({0.5})},
                    {"i", from_vector<std::int32_t>({7})}},
                   {{"epoch", "3"}});
  // Wider types first, within a type the names in order, each tensor right behind the one before.
  const std::string header = R"({"__metadata__":{"epoch":"3"},)"
                             R"("a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                             R"("d":{"dtype":"F64","shape":[1],"data_offsets":[16,24]},)"
                             R"("b.bias":{"dtype":"F32","shape":[1],"data_offsets":[24,28]},)"
                             R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[28,52]},)"
                             R"("i":{"dtype":"I32","shape":[1],"data_offsets":[52,56]},)"
                             R"("h":{"dtype":"F16","shape":[],"data_offsets":[56,58]},)"
                             R"("u":{"dtype":"U8","shape":[0,3],"data_offsets":[58,58]},)"
                             "\"\u00e9\\\"\\n\":"
                             R"({"dtype":"BOOL","shape":[2],"data_offsets":[58,60]}})";
  const std::string padding(7, ' ');
  const std::string data =
      "\x01\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff"s
      "\0\0\0\0\0\0\xe0\x3f"s
      "\0\0\x80\xbf"s
      "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc0\x40"s
      "\x07\0\0\0"s
      "\0\x3e"s
      "\x01\0"s;
  CHECK(contents(path) == "\xf0\x01\0\0\0\0\0\0"s + header + padding + data);
  CHECK((header + padding).size() == 0x1f0);
}

TEST_CASE("a safetensors file without tensors is a padded pair of braces") {
  const Folder folder;
  const std::string path = folder.path / "none.safetensors";
  save_safetensors(path, {});
  CHECK(contents(path) == "\x08\0\0\0\0\0\0\0{}      "s);
  CHECK(load_safetensors(path).tensors.empty());
  CHECK(load_safetensors(path).metadata.empty());

  save_safetensors(path, {}, {{"framework", "pt"}});
  CHECK(contents(path) == "\x28\0\0\0\0\0\0\0{\"__metadata__\":{\"framework\":\"pt\"}}     "s);
  CHECK(load_safetensors(path).metadata == std::map<std::string, std::string>{{"framework", "pt"}});
}

TEST_CASE("tensors may lie in any order, and the header be written in any style") {
  const Folder folder;
  const std::string path = folder.path / "style.safetensors";
  const std::string header =
      "{ \"b\" : {\"data_offsets\": [1, 5], \"shape\": [ 1 ], \"dtype\": \"F32\"},\n"
      "\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1,1]}, \"__metadata__\":{} ,"
      "\"empty\":{\"dtype\":\"F64\",\"data_offsets\":[1,1],\"shape\":[2,0]}}\t ";
  write(path, file_of(header, "\x09\0\0\x80\x3f"s));
  const SafetensorsFile file = load_safetensors(path);
  REQUIRE(file.tensors.size() == 3);
  CHECK(file.tensors.at("b").to_vector<float>() == std::vector<float>{1});
  CHECK(file.tensors.at("\u00e9\U0001F600").to_vector<int>() == std::vector<int>{9});
  CHECK(file.tensors.at("\u00e9\U0001F600").shape() == Shape{1, 1});
  CHECK(file.tensors.at("empty").shape() == Shape{2, 0});
  CHECK(file.tensors.at("empty").dtype() == f64);
}

// --- round trips -----------------------------------------------------------------------------------------------------

TEST_CASE("every bit of every dtype survives a safetensors file") {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  // 0, the smallest and largest subnormal, smallest and largest normal, inf, a signalling and two quiet NaNs; then
  // their negatives.
  std::vector<std::uint32_t> floats = {0,          1,          0x007FFFFF, 0x00800000, 0x7F7FFFFF,
                                       0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFABCDE, 0x3DCCCCCD};
  std::vector<std::uint64_t> doubles = {0,
                                        1,
                                        0x000FFFFFFFFFFFFF,
                                        0x0010000000000000,
                                        0x7FEFFFFFFFFFFFFF,
                                        0x7FF0000000000000,
                                        0x7FF0000000000001,
                                        0x7FF8000000000000,
                                        0x7FFABCDEF0123456,
                                        0x3FB999999999999A};
  for (std::size_t i = 0; i < 10; ++i) {
    floats.push_back(floats[i] | 0x80000000);
    doubles.push_back(doubles[i] | 0x8000000000000000);
  }
  const Tensors all = {
      from_bits(halves, f16, {256, 256}),
      from_bits(floats, f32, {4, 5}),
      from_bits(doubles, f64, {2, 2, 5}),
      from_vector<std::int32_t>({0, 1, -1, INT32_MIN, INT32_MAX, 16909060}, {6}),
      from_vector<std::int64_t>({0, 1, -1, INT64_MIN, INT64_MAX, 72623859790382856}, {1, 6}),
      from_bits(bytes, u8, {16, 16}),
      from_vector<bool>({true, false, false, true, true, true, false}, {7, 1, 1}),
  };
  REQUIRE(all.size() == kDTypeCount);
  for (const Tensor& x : all) {
    CAPTURE(name_of(x.dtype()));
    CHECK(bits(round_trip(x)) == bits(x));
    // The same through a view that has to be copied.
    const Tensor last = x.reshape({-1, 1});
    const Tensor twice = round_trip(last.expand({last.size(0), 2}));
    CHECK(bits(twice.slice(1, 0, 1).contiguous()) == bits(x));
    CHECK(bits(twice.slice(1, 1, 2).contiguous()) == bits(x));
  }
}

TEST_CASE("a view is saved row-major, whatever memory it looks at") {
  const Tensor x = arange(2 * 3 * 4 * 5, f32).view({2, 3, 4, 5});
  const Tensors views = {x.permute({3, 1, 0, 2}),
                         x.channels_last(),
                         x.slice(3, 1, 5, 2),
                         x.slice(1, 2),
                         x[1][2],
                         x.narrow(0, 1, 1).expand({4, 3, 4, 5}),
                         x.to(f16).transpose(0, 3),
                         x.to(i64).transpose(1, 2),
                         (x > 50).transpose(0, 2),
                         x.slice(2, 4)};
  for (const Tensor& view : views) {
    CAPTURE(view.shape().str());
    CHECK(round_trip(view).to_vector<double>() == view.to_vector<double>());
  }
}

TEST_CASE("scalars, empty tensors and tensors of a graph are saved like any other") {
  const Tensor scalar = round_trip(from_vector<double>({-2.5}, {}));
  CHECK(scalar.rank() == 0);
  CHECK(scalar.item() == -2.5);
  CHECK(round_trip(Tensor(7)).item<std::int64_t>() == 7);
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{2, 0, 4}, Shape{1, 1, 1, 1, 1, 1, 1, 0}})
    for (const DType dtype : {f16, f32, f64, i32, i64, u8, boolean}) round_trip(zeros(shape, dtype));
  CHECK(round_trip(ones({1, 1, 1, 2, 1, 1, 1, 1})).to_vector<float>() == std::vector<float>{1, 1});

  const Tensor leaf = from_vector<float>({1, 2, 3}).requires_grad_();
  CHECK(round_trip(leaf).to_vector<float>() == std::vector<float>{1, 2, 3});
  const Tensor made = round_trip((leaf * 2).view({3, 1}).expand({3, 2}));
  CHECK(made.to_vector<float>() == std::vector<float>{2, 2, 4, 4, 6, 6});
  CHECK_FALSE(made.requires_grad());
}

TEST_CASE("names and metadata may be any UTF-8") {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "0.weight",
                                          "a/b\\c",
                                          "\"quoted\"",
                                          "line\nbreak\ttab\r\b\f",
                                          "\x01\x1f\x7f",
                                          "nul\0inside"s,
                                          "\u00e9\u4f60\u597d",
                                          "\U0001F600\uffff",
                                          "{}",
                                          "dtype",
                                          "__metadata__ "};
  NamedTensors tensors;
  std::map<std::string, std::string> metadata = {{"__metadata__", "a key like any other"}};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    tensors[texts[i]] = from_vector<std::int32_t>({static_cast<std::int32_t>(i)});
    metadata[texts[i]] = texts[texts.size() - 1 - i];
  }
  const Folder folder;
  const std::string path = folder.path / "\u00e9.safetensors";
  save_safetensors(path, tensors, metadata);
  const SafetensorsFile file = load_safetensors(path);
  CHECK(file.metadata == metadata);
  REQUIRE(file.tensors.size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    REQUIRE(file.tensors.contains(texts[i]));
    CHECK(file.tensors.at(texts[i]).item<std::int64_t>() == static_cast<std::int64_t>(i));
  }
}

TEST_CASE("a tensor of several megabytes arrives whole, and the file can be read again and replaced") {
  const Folder folder;
  const std::string path = folder.path / "large.safetensors";
  const Tensor x = arange(1'500'000, i32);
  save_safetensors(path, {{"x", x}, {"t", x.view({3, 500'000}).t()}});
  for (int i = 0; i < 2; ++i) {
    const SafetensorsFile file = load_safetensors(path);
    CHECK(bits(file.tensors.at("x")) == bits(x));
    CHECK(bits(file.tensors.at("t").t().contiguous()) == bits(x));
  }
  save_safetensors(path, small_model());
  CHECK(load_safetensors(path).tensors.size() == 4);
  CHECK(folder.files() == 1);
}

// --- what is refused when saving -------------------------------------------------------------------------------------

TEST_CASE("what cannot be saved is named, and the old file stays") {
  const Folder folder;
  const std::string path = folder.path / "model.safetensors";
  save_safetensors(path, small_model());
  const std::string before = contents(path);
  const Tensor x = ones({2});

  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"__metadata__", x}}),
                       ("save_safetensors: '" + path +
                        "' was not written: a tensor is named \"__metadata__\", which the format keeps for metadata; "
                        "rename it")
                           .c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"a", x}, {"b", Tensor()}}),
                       doctest::Contains("model.safetensors' was not written: tensor \"b\" is undefined"), Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"wei\xffght", x}}), doctest::Contains("\"wei\uFFFDght\" is not UTF-8"),
                       Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"cut\xe4\xbd", x}}), doctest::Contains("is not UTF-8"), Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"a", x}}, {{"k\x80", "v"}}), doctest::Contains("is not UTF-8"), Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"a", x}}, {{"k", "\xc0\x80"}}), doctest::Contains("is not UTF-8"),
                       Error);
  CHECK(contents(path) == before);
  CHECK(folder.files() == 1);
}

TEST_CASE("a place that cannot be written to is an error that leaves nothing behind") {
  const Folder folder;
  const NamedTensors tensors = small_model();
  CHECK_THROWS_WITH_AS(save_safetensors(folder.path / "no" / "such.safetensors", tensors),
                       doctest::Contains("such.safetensors' was not written: no file can be made in its folder"),
                       Error);
  // Not even the superuser can make a file there.
  CHECK_THROWS_WITH_AS(save_safetensors("/proc/model.safetensors", tensors),
                       doctest::Contains("'/proc/model.safetensors' was not written"), Error);
  fs::create_directory(folder.path / "taken");
  CHECK_THROWS_WITH_AS(save_safetensors(folder.path / "taken", tensors),
                       doctest::Contains("cannot be put in its place"), Error);
  CHECK(folder.files() == 1);
  CHECK(fs::is_directory(folder.path / "taken"));
}

TEST_CASE("a disk that is full in the middle of saving leaves the old file") {
  const Folder folder;
  const std::string path = folder.path / "model.safetensors";
  save_safetensors(path, small_model());
  const std::string before = contents(path);

  // No file may grow beyond 10,000 bytes; without the signal, writing more is an error as on a full disk.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{.rlim_cur = 10'000, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  try {
    save_safetensors(path, {{"a", ones({1000})}, {"b", ones({5000})}});
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);

  CHECK(message.find("model.safetensors' was not written: writing stopped") != std::string::npos);
  CHECK(contents(path) == before);
  CHECK(folder.files() == 1);
}

// --- what is refused when loading ------------------------------------------------------------------------------------

TEST_CASE("a safetensors file that is not there or not a file is a clear error") {
  const Folder folder;
  const auto refuses = [](const std::string& path, const std::string& reason) {
    CAPTURE(path);
    CHECK_THROWS_WITH_AS(load_safetensors(path), ("load_safetensors: '" + path + "': " + reason).c_str(), Error);
  };
  refuses(folder.path / "missing", "cannot be opened: No such file or directory");
  refuses("", "cannot be opened: No such file or directory");
  refuses(folder.path, "is a folder; expected a safetensors file");
  refuses("/dev/zero", "is a device or a pipe; expected a safetensors file");
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  refuses(pipe, "is a device or a pipe; expected a safetensors file");
  const fs::path loop = folder.path / "loop";
  fs::create_symlink(loop, loop);
  refuses(loop, "cannot be opened: Too many levels of symbolic links");

  const fs::path locked = folder.path / "locked";
  save_safetensors(locked, small_model());
  refuses(locked / "below", "cannot be opened: Not a directory");
  REQUIRE(chmod(locked.c_str(), 0) == 0);
  if (geteuid() == 0) {
    CHECK(load_safetensors(locked).tensors.size() == 4);  // nothing is locked to the superuser
  } else {
    refuses(locked, "cannot be opened: Permission denied");
  }
}

TEST_CASE("a header that lies is an error that says what was found and expected") {
  struct Lie {
    std::string header;
    std::size_t data_bytes;
    std::string message;
  };
  const std::string dtypes = "expected one of I64, F64, F32, I32, F16, U8, BOOL; convert it where the file was made";
  const std::string u8_one = R"({"dtype":"U8","shape":[1],"data_offsets":)";
  const std::vector<Lie> lies = {
      // not a JSON object
      {"", 0, "the header begins with \"\"; expected {"},
      {"[]", 0, "the header begins with \"[\"; expected {"},
      {" {}", 0, "the header begins with \" \"; expected {"},
      {"\xef\xbb\xbf{}", 0, "the header begins with \"\uFFFD\"; expected {"},
      {"{", 0, "the header is not valid JSON: [json.exception.parse_error.101] parse error at line 1, column 2"},
      {"{}x", 0, "the header is not valid JSON"},
      {"{}{}", 0, "the header is not valid JSON"},
      {"{\"a\xff\":1}", 0, "invalid string: ill-formed UTF-8 byte"},
      {"{'a':1}", 0, "the header is not valid JSON"},
      {R"({"a":1,})", 0, "the header is not valid JSON"},
      {R"({"\ud800":1})", 0, "the header is not valid JSON"},
      {"{}\0"s, 0, "the header is not valid JSON: it holds a zero byte"},
      {"{}\0junk"s, 0, "the header is not valid JSON: it holds a zero byte"},
      {entry("\"U8\"", "[1e400]", "[0,1]"), 1, "the header is not valid JSON: [json.exception.out_of_range.406]"},
      {entry("\"U8\"", "[NaN]", "[0,1]"), 1, "the header is not valid JSON"},
      // keys
      {R"({"w":)" + u8_one + R"([0,1]},"w":)" + u8_one + "[1,2]}}", 2, "the header has the key \"w\" twice"},
      {R"({"w":)" + u8_one + R"([0,1]},"\u0077":)" + u8_one + "[1,2]}}", 2, "the header has the key \"w\" twice"},
      {R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "has the key \"dtype\" twice"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "the header has the key \"a\" twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "the header has the key \"__metadata__\" twice"},
      {R"({"w":1})", 0, "tensor \"w\": found 1; expected an object of dtype, shape and data_offsets"},
      {R"({"w":null})", 0, "tensor \"w\": found null; expected"},
      {R"({"w":{}})", 0, "tensor \"w\": found {}; expected"},
      {R"({"w":["U8",[1],[0,1]]})", 1, "tensor \"w\": found [\"U8\",[1],[0,1]]; expected"},
      {R"({"w":{"dtype":"U8","shape":[1]}})", 1, "expected an object of dtype, shape and data_offsets"},
      {R"({"w":{"dtype":"U8","shape":[1],"offsets":[0,1]}})", 1, "expected an object of dtype, shape and data_offsets"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "expected an object of dtype, shape and"},
      // metadata
      {R"({"__metadata__":"a"})", 0, "__metadata__ is \"a\"; expected an object of strings"},
      {R"({"__metadata__":null})", 0, "__metadata__ is null; expected an object of strings"},
      {R"({"__metadata__":["a"]})", 0, "__metadata__ is [\"a\"]; expected an object of strings"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ is {\"a\":1}; expected an object of strings"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", 0, "expected an object of strings"},
      // dtype
      {entry("\"BF16\"", "[1]", "[0,2]"), 2, "tensor \"w\": the dtype \"BF16\" is not supported; " + dtypes},
      {entry("\"F8_E4M3\"", "[1]", "[0,1]"), 1, "the dtype \"F8_E4M3\" is not supported; " + dtypes},
      {entry("\"U64\"", "[1]", "[0,8]"), 8, "the dtype \"U64\" is not supported; " + dtypes},
      {entry("\"f32\"", "[1]", "[0,4]"), 4, "the dtype \"f32\" is not supported"},
      {entry("\"\"", "[1]", "[0,4]"), 4, "the dtype \"\" is not supported"},
      {entry("5", "[1]", "[0,4]"), 4, "the dtype 5 is not supported"},
      {entry("null", "[1]", "[0,4]"), 4, "the dtype null is not supported"},
      {entry("[\"F32\"]", "[1]", "[0,4]"), 4, "the dtype [\"F32\"] is not supported"},
      // shape
      {entry("\"F32\"", "1", "[0,4]"), 4, "tensor \"w\": the shape is 1; expected a list of integers, none of them"},
      {entry("\"F32\"", "\"1\"", "[0,4]"), 4, "the shape is \"1\"; expected a list of integers"},
      {entry("\"F32\"", "{\"a\":1}", "[0,4]"), 4, "the shape is {\"a\":1}; expected a list of integers"},
      {entry("\"F32\"", "null", "[0,4]"), 4, "the shape is null; expected a list of integers"},
      {entry("\"F32\"", "[-1]", "[0,4]"), 4, "the shape is [-1]; expected a list of integers"},
      {entry("\"F32\"", "[-0]", "[0,0]"), 0, "expected a list of integers"},
      {entry("\"F32\"", "[-1,-1]", "[0,4]"), 4, "the shape is [-1,-1]; expected a list of integers"},
      {entry("\"F32\"", "[1.0]", "[0,4]"), 4, "the shape is [1.0]; expected a list of integers"},
      {entry("\"F32\"", "[\"1\"]", "[0,4]"), 4, "the shape is [\"1\"]; expected a list of integers"},
      {entry("\"F32\"", "[true]", "[0,4]"), 4, "the shape is [true]; expected a list of integers"},
      {entry("\"F32\"", "[null]", "[0,4]"), 4, "the shape is [null]; expected a list of integers"},
      {entry("\"U8\"", "[9223372036854775808]", "[0,1]"), 1, "the shape is [9223372036854775808]; expected a list"},
      {entry("\"U8\"", "[99999999999999999999]", "[0,1]"), 1, "expected a list of integers"},
      {entry("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "takes more bytes than 64 bits can count"},
      {entry("\"F64\"", "[2305843009213693952]", "[0,0]"), 0,
       "the shape [2305843009213693952] of F64 takes more bytes than 64 bits can count"},
      {entry("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "takes more bytes than 64 bits can count"},
      {entry("\"U8\"", "[0,1152921504606846976]", "[0,0]"), 0, "tensor \"w\": empty: the shape"},
      // data_offsets
      {entry("\"F32\"", "[1]", "4"), 4, "tensor \"w\": the data_offsets are 4; expected [begin, end] with 0 <= begin"},
      {entry("\"F32\"", "[1]", "[4]"), 4, "the data_offsets are [4]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[0,4,8]"), 4, "the data_offsets are [0,4,8]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[\"0\",\"4\"]"), 4, "the data_offsets are [\"0\",\"4\"]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[0,4.0]"), 4, "the data_offsets are [0,4.0]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[-4,0]"), 4, "the data_offsets are [-4,0]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[4,0]"), 4, "the data_offsets are [4,0]; expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[18446744073709551612,0]"), 4, "expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[0,18446744073709551615]"), 4, "expected [begin, end]"},
      {entry("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"), 4,
       "its data ends at byte 9223372036854775807, but the file has 4 bytes of data; it is cut off or damaged"},
      {entry("\"F32\"", "[1]", "[0,5]"), 5, "the shape [1] of F32 takes 4 bytes; data_offsets [0,5] hold 5"},
      {entry("\"F32\"", "[2,3]", "[0,20]"), 20, "the shape [2,3] of F32 takes 24 bytes; data_offsets [0,20] hold 20"},
      {entry("\"F32\"", "[]", "[0,0]"), 0, "the shape [] of F32 takes 4 bytes; data_offsets [0,0] hold 0"},
      {entry("\"F32\"", "[0]", "[0,4]"), 4, "the shape [0] of F32 takes 0 bytes; data_offsets [0,4] hold 4"},
      {entry("\"U8\"", "[1000000000000]", "[0,1000000000000]"), 4, "its data ends at byte 1000000000000, but the file"},
      // what the data holds
      {entry("\"F32\"", "[1]", "[0,4]"), 5, "the last tensor ends at byte 4 of the data, but the file has 5 bytes"},
      {"{}", 1, "the last tensor ends at byte 0 of the data, but the file has 1 bytes"},
      {entry("\"U8\"", "[1]", "[1,2]"), 2, "tensor \"w\" begins at byte 1 of the data; expected 0, where the one"},
      {R"({"a":)" + u8_one + R"([0,1]},"b":)" + u8_one + "[2,3]}}", 3,
       "tensor \"b\" begins at byte 2 of the data; expected 1, where the one before it ends"},
      {R"({"a":)" + u8_one + R"([0,1]},"b":)" + u8_one + "[0,1]}}", 1,
       "tensor \"b\" begins at byte 0 of the data, where another tensor lies, up to byte 1"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":)" + u8_one + R"([2,3]}})", 4,
       "tensor \"b\" begins at byte 2 of the data, where another tensor lies, up to byte 4"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2, "tensor \"e\" begins at byte 1 of the data, where another tensor lies"},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.header);
    const std::string message = failure(file_of(lie.header, std::string(lie.data_bytes, '\1')));
    CAPTURE(message);
    CHECK(message.find(lie.message) != std::string::npos);
  }
  // The same entry is fine where it tells the truth.
  CHECK(failure(file_of(entry("\"F32\"", "[1]", "[0,4]"), "\1\1\1\1")) == "no error");
}

TEST_CASE("a bool that is neither 0 nor 1 is an error") {
  const std::string header = entry("\"BOOL\"", "[4]", "[0,4]");
  CHECK(failure(file_of(header, "\0\1\1\0"s)) == "no error");
  CHECK(failure(file_of(header, "\0\1\2\0"s)) ==
        "tensor \"w\": element 2 of this BOOL tensor is the byte 2; expected 0 or 1");
  CHECK(failure(file_of(header, "\0\1\1\xff"s)).find("element 3 of this BOOL tensor is the byte 255") !=
        std::string::npos);
}

TEST_CASE("a header length that lies is an error, and takes no memory") {
  const auto with_length = [](std::uint64_t length, const std::string& rest) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + rest;
  };
  CHECK(failure("") == "has 0 bytes; a safetensors file begins with 8 bytes of header length");
  CHECK(failure("\x02\0\0\0\0\0\0"s) == "has 7 bytes; a safetensors file begins with 8 bytes of header length");
  CHECK(failure(with_length(3, "{}")) == "is cut off: it announces a header of 3 bytes, and 2 follow");
  CHECK(failure(with_length(100'000'000, "{}")) ==
        "is cut off: it announces a header of 100000000 bytes, and 2 follow");
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7})
    CHECK(failure(with_length(length, "{}")) ==
          "announces a header of " + std::to_string(length) +
              " bytes; the format allows 100000000; this is no safetensors file, or a damaged one");
}

TEST_CASE("a lying header takes no memory of tensors") {
  reset_peak_memory();
  const std::size_t before = memory_stats().peak;
  CHECK(failure(file_of(entry("\"F32\"", "[1000,1000,1000]", "[0,4000000000]"), "abcd")) ==
        "tensor \"w\": its data ends at byte 4000000000, but the file has 4 bytes of data; it is cut off or damaged");
  // Not for the tensors before the one that lies either.
  const std::string honest = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  CHECK(failure(file_of("{" + honest + R"(,"z":{"dtype":"U8","shape":[4],"data_offsets":[4,9]}})", "abcdefgh")) !=
        "no error");
  CHECK(failure(file_of("{" + honest + "}", "abcde")) != "no error");
  CHECK(memory_stats().peak == before);
  CHECK(failure(file_of("{" + honest + "}", "abcd")) == "no error");
  CHECK(memory_stats().peak > before);
}

TEST_CASE("a header that nests without end is an error, not a full stack") {
  constexpr std::size_t depth = 100'000;
  std::string objects = "{", closing;
  for (std::size_t i = 0; i < depth; ++i) {
    objects += "\"a\":{";
    closing += '}';
  }
  const std::string open(depth, '['), close(depth, ']');
  for (const std::string& header :
       {objects + closing + "}", objects, "{\"w\":" + open + close + "}", "{\"w\":" + open,
        "{\"__metadata__\":{\"a\":" + open + close + "}}", entry("\"U8\"", open + close, "[0,1]"),
        entry(open + close, "[1]", "[0,1]"), R"({"w":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})"s})
    CHECK(failure(file_of(header, "\1")) ==
          "the header nests lists or objects more than 3 deep; expected an object of tensors");
}

TEST_CASE("errors show no more of a header than a line") {
  const std::string name(1000, 'n');
  CHECK(failure(file_of("{\"" + name + "\":1}", "")) ==
        "tensor \"" + name.substr(0, 79) + "...: found 1; expected an object of dtype, shape and data_offsets");
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\u00e9";  // 2 bytes each: byte 80 is within one
  CHECK(failure(file_of("{\"" + accents + "\":1}", "")).starts_with("tensor \"" + accents.substr(0, 78) + "...: "));
  CHECK(failure(file_of("{\"a\nb\":1}", "")).find("control character U+000A") != std::string::npos);
  CHECK(failure(file_of("{\"a\\nb\":1}", "")).starts_with("tensor \"a\\nb\": found 1"));
  CHECK(failure(file_of("{" + std::string(10'000, 'x') + "}", "")).size() < 500);
  CHECK(failure(file_of("{\"" + std::string(10'000, 'x') + "\"x", "")).size() < 500);
  // Nor do they print it once for each of its numbers.
  std::string sizes = "1";
  for (int i = 0; i < 100'000; ++i) sizes += ",1";
  CHECK(failure(file_of(entry("\"U8\"", "[" + sizes + "]", "[0,2]"), "ab")).find("takes 1 bytes; data_offsets [0,2]") !=
        std::string::npos);
}

TEST_CASE("a file cut off anywhere, or with a byte too many, is an error") {
  const Folder folder;
  const std::string path = folder.path / "whole.safetensors";
  save_safetensors(path, small_model(), {{"epoch", "12"}});
  const std::string whole = contents(path);
  REQUIRE(failure(whole) == "no error");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    const std::string message = failure(whole.substr(0, length));
    CHECK(message.find(length < 8 ? "begins with 8 bytes of header length" : "is cut off") != std::string::npos);
  }
  CHECK(failure(whole + '\0').find("but the file has") != std::string::npos);
}

TEST_CASE("a damaged header is an error or another file, never anything else") {
  const Folder folder;
  const std::string path = folder.path / "damaged.safetensors";
  save_safetensors(path, small_model(), {{"epoch", "12"}});
  const std::string whole = contents(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
  const std::size_t until = sizeof(header_bytes) + header_bytes;
  REQUIRE(until < whole.size());

  std::mt19937_64 random(42);
  int loaded = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = whole;
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      const std::size_t at = random() % until;
      damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1 << random() % 8));
    }
    write(path, damaged);
    try {
      const SafetensorsFile file = load_safetensors(path);
      for (const auto& [name, tensor] : file.tensors) CHECK(bits(tensor).size() <= whole.size() - until);
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(loaded > 100);  // flips within a name or the metadata
  CHECK(refused > 2000);
}
