#include "engine/io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "engine/error.h"
#include "engine/io/atomic_file.h"

namespace halfgrad {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "the files are little-endian; numbers are copied as they are");

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference implementation reads no longer one
constexpr const char* metadata_key = "__metadata__";

struct FileType {
  const char* name;
  DType dtype;
};
// In the order in which tensors are written, that of the reference implementation: by falling alignment.
constexpr FileType file_types[] = {{"I64", i64}, {"F64", f64}, {"F32", f32},     {"I32", i32},
                                   {"F16", f16}, {"U8", u8},   {"BOOL", boolean}};
static_assert(std::size(file_types) == kDTypeCount);

// A damaged file may hold anything, of any length; an error quotes the beginning of it.
std::string shortened(const std::string& text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::size_t end = longest;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

// A part of the header as JSON, for an error.
std::string shown(const json& part) { return shortened(part.dump(-1, ' ', false, json::error_handler_t::replace), 80); }

// What f returns; an Error thrown in it gets `where` in front of its text.
template <class F>
auto located(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

// --- writing ---------------------------------------------------------------------------------------------------------

std::string encoded(const json& part) {
  try {
    return part.dump();
  } catch (const json::exception&) {
    fail("{} is not UTF-8, as names and metadata have to be", shown(part));
  }
}

struct Plan {
  std::string header;                  // padded
  std::vector<const Tensor*> tensors;  // in the order of their data
};

Plan plan_file(const std::map<std::string, Tensor>& tensors, const std::map<std::string, std::string>& metadata) {
  for (const auto& [name, tensor] : tensors) {
    check(name != metadata_key, "a tensor is named \"{}\", which the format keeps for metadata; rename it", name);
    check(tensor.defined(), "tensor {} is undefined; expected one with values", shown(name));
  }
  Plan plan;
  const auto add = [&](const std::string& key, const std::string& value) {
    plan.header += plan.header.empty() ? '{' : ',';
    plan.header += encoded(key) + ":" + value;
  };
  if (!metadata.empty()) add(metadata_key, encoded(metadata));
  std::uint64_t end = 0;
  for (const FileType& type : file_types) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.dtype() != type.dtype) continue;
      const std::uint64_t begin = end;
      end += static_cast<std::uint64_t>(tensor.numel()) * size_of(type.dtype);
      add(name, fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", type.name,
                            encoded(tensor.shape().vec()), begin, end));
      plan.tensors.push_back(&tensor);
    }
  }
  plan.header += plan.header.empty() ? "{}" : "}";
  plan.header.resize((plan.header.size() + 7) / 8 * 8, ' ');
  check(plan.header.size() <= max_header_bytes,
        "the names, shapes and metadata take {} bytes; the format allows {}; shorten the metadata", plan.header.size(),
        max_header_bytes);
  return plan;
}

// --- reading ---------------------------------------------------------------------------------------------------------

// A file of known size, read from front to back.
class InputFile {
 public:
  // Not blocking: a pipe that nobody writes to is refused rather than waited for.
  explicit InputFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    check(descriptor_ >= 0, "cannot be opened: {}", std::strerror(errno));
  }
  ~InputFile() { close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const {
    struct stat info {};
    check(fstat(descriptor_, &info) == 0, "its size cannot be found out: {}", std::strerror(errno));
    check(!S_ISDIR(info.st_mode), "is a folder; expected a safetensors file");
    check(S_ISREG(info.st_mode), "is a device or a pipe; expected a safetensors file");
    return static_cast<std::uint64_t>(info.st_size);
  }

  void read(void* to, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      const ssize_t n = ::read(descriptor_, static_cast<char*>(to) + done, bytes - done);
      if (n < 0 && errno == EINTR) continue;
      check(n >= 0, "cannot be read: {}", std::strerror(errno));
      check(n > 0, "became shorter while it was read; load it again");
      done += static_cast<std::uint64_t>(n);
    }
  }

 private:
  int descriptor_;
};

std::string read_header(InputFile& file, std::uint64_t file_bytes) {
  std::uint64_t bytes = 0;
  check(file_bytes >= sizeof(bytes), "has {} bytes; a safetensors file begins with 8 bytes of header length",
        file_bytes);
  file.read(&bytes, sizeof(bytes));
  check(bytes <= max_header_bytes,
        "announces a header of {} bytes; the format allows {}; this is no safetensors file, or a damaged one", bytes,
        max_header_bytes);
  check(bytes <= file_bytes - sizeof(bytes), "is cut off: it announces a header of {} bytes, and {} follow", bytes,
        file_bytes - sizeof(bytes));
  std::string header(bytes, '\0');
  file.read(header.data(), bytes);
  return header;
}

// What nlohmann::json leaves to its user is refused while it parses: a key that appears twice, and nesting without end.
json parse_header(const std::string& text) {
  check(text.starts_with('{'), "the header begins with {}; expected {{", shown(text.substr(0, 1)));
  // At which the parser would stop, as if it were the end.
  check(text.find('\0') == std::string::npos, "the header is not valid JSON: it holds a zero byte");
  std::array<std::set<std::string>, 3> keys;  // of the object that is open at each depth; a shape is at depth 2
  const auto refuse = [&](int depth, json::parse_event_t event, json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      check(level < keys.size(), "the header nests lists or objects more than {} deep; expected an object of tensors",
            keys.size());
      keys[level].clear();
    } else if (event == json::parse_event_t::key) {
      check(keys[level - 1].insert(parsed.get<std::string>()).second, "the header has the key {} twice", shown(parsed));
    }
    return true;
  };
  try {
    return json::parse(text, refuse);
  } catch (const json::exception& error) {
    fail("the header is not valid JSON: {}", shortened(error.what(), 300));
  }
}

std::map<std::string, std::string> parse_metadata(const json& found) {
  const bool fits =
      found.is_object() && std::all_of(found.begin(), found.end(), [](const json& v) { return v.is_string(); });
  check(fits, "{} is {}; expected an object of strings", metadata_key, shown(found));
  return found;
}

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;  // in the data
};

Entry parse_entry(const std::string& name, const json& found, std::uint64_t data_bytes) {
  check(found.is_object() && found.size() == 3 && found.contains("dtype") && found.contains("shape") &&
            found.contains("data_offsets"),
        "found {}; expected an object of dtype, shape and data_offsets", shown(found));
  const json& dtype = found["dtype"];
  const json& shape = found["shape"];
  const json& offsets = found["data_offsets"];

  const FileType* type =
      std::find_if(std::begin(file_types), std::end(file_types), [&](const FileType& t) { return dtype == t.name; });
  if (type == std::end(file_types)) {
    std::string names;
    for (const FileType& t : file_types) names += (names.empty() ? "" : ", ") + std::string(t.name);
    fail("the dtype {} is not supported; expected one of {}; convert it where the file was made", shown(dtype), names);
  }

  const auto is_size = [](const json& n) { return n.is_number_unsigned() && n.get<std::uint64_t>() <= INT64_MAX; };
  check(shape.is_array() && std::all_of(shape.begin(), shape.end(), is_size),
        "the shape is {}; expected a list of integers, none of them negative", shown(shape));
  const Shape sizes(shape.get<std::vector<std::int64_t>>());
  std::int64_t bytes = static_cast<std::int64_t>(size_of(type->dtype));
  std::int64_t extent = bytes;  // the same with 1 for sizes of 0, as in the computation of strides
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(extent, std::max<std::int64_t>(size, 1), &extent))
      fail("the shape {} of {} takes more bytes than 64 bits can count", shown(shape), type->name);
    bytes *= size;
  }

  check(offsets.is_array() && offsets.size() == 2 && std::all_of(offsets.begin(), offsets.end(), is_size) &&
            offsets[0] <= offsets[1],
        "the data_offsets are {}; expected [begin, end] with 0 <= begin <= end", shown(offsets));
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  check(end <= data_bytes, "its data ends at byte {}, but the file has {} bytes of data; it is cut off or damaged", end,
        data_bytes);
  check(end - begin == static_cast<std::uint64_t>(bytes), "the shape {} of {} takes {} bytes; data_offsets {} hold {}",
        shown(shape), type->name, bytes, shown(offsets), end - begin);
  return {name, type->dtype, sizes, begin, end};
}

// Sorts them by their place in the data, which they must fill exactly.
void arrange(std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    check(entry.begin >= end, "tensor {} begins at byte {} of the data, where another tensor lies, up to byte {}",
          shown(entry.name), entry.begin, end);
    check(entry.begin == end, "tensor {} begins at byte {} of the data; expected {}, where the one before it ends",
          shown(entry.name), entry.begin, end);
    end = entry.end;
  }
  check(end == data_bytes, "the last tensor ends at byte {} of the data, but the file has {} bytes of data", end,
        data_bytes);
}

Tensor read_tensor(InputFile& file, const Entry& entry) {
  Tensor x = empty(entry.shape, entry.dtype);
  file.read(x.raw_data(), entry.end - entry.begin);
  if (entry.dtype == boolean && x.numel() > 0) {
    const auto* bytes = static_cast<const std::uint8_t*>(x.raw_data());
    const auto* wrong = std::find_if(bytes, bytes + x.numel(), [](std::uint8_t byte) { return byte > 1; });
    check(wrong == bytes + x.numel(), "element {} of this BOOL tensor is the byte {}; expected 0 or 1", wrong - bytes,
          *wrong);
  }
  return x;
}

}  // namespace

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const Plan plan = located(fmt::format("save_safetensors: '{}' was not written", path),
                            [&] { return plan_file(tensors, metadata); });
  AtomicFile file(path);
  const std::uint64_t header_bytes = plan.header.size();
  file.write({reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes)});
  file.write(plan.header);
  for (const Tensor* tensor : plan.tensors) {
    const Tensor x = tensor->detach().to(Device::cpu()).contiguous();
    file.write({static_cast<const char*>(x.raw_data()), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())});
  }
  file.commit();
}

SafetensorsFile load_safetensors(const std::string& path) {
  return located(fmt::format("load_safetensors: '{}'", path), [&] {
    InputFile file(path);
    const std::uint64_t file_bytes = file.size();
    const std::string text = read_header(file, file_bytes);
    const std::uint64_t data_bytes = file_bytes - sizeof(std::uint64_t) - text.size();

    SafetensorsFile loaded;
    std::vector<Entry> entries;
    const json header = parse_header(text);
    for (const auto& item : header.items()) {
      if (item.key() == metadata_key) {
        loaded.metadata = parse_metadata(item.value());
      } else {
        entries.push_back(located(fmt::format("tensor {}", shown(item.key())),
                                  [&] { return parse_entry(item.key(), item.value(), data_bytes); }));
      }
    }
    arrange(entries, data_bytes);
    for (const Entry& entry : entries)
      loaded.tensors[entry.name] =
          located(fmt::format("tensor {}", shown(entry.name)), [&] { return read_tensor(file, entry); });
    return loaded;
  });
}

}  // namespace halfgrad
