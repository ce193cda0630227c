#include "data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <type_traits>
#include <vector>

#include "engine/error.h"

namespace halfgrad::data {

namespace {

using Bytes = std::vector<std::uint8_t>;

// n elements of type Raw, big-endian, as Out.
template <class Raw, class Out>
void decode(const std::uint8_t* from, std::int64_t n, void* to) {
  using Bits =
      std::conditional_t<sizeof(Raw) == 1, std::uint8_t,
                         std::conditional_t<sizeof(Raw) == 2, std::uint16_t,
                                            std::conditional_t<sizeof(Raw) == 4, std::uint32_t, std::uint64_t>>>;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t bits = 0;
    for (std::size_t byte = 0; byte < sizeof(Raw); ++byte) bits = bits << 8 | *from++;
    static_cast<Out*>(to)[i] = static_cast<Out>(std::bit_cast<Raw>(static_cast<Bits>(bits)));
  }
}

struct ElementType {
  int code;
  std::int64_t bytes;
  DType dtype;  // that a tensor gets
  void (*decode)(const std::uint8_t* from, std::int64_t n, void* to);
};
constexpr ElementType element_types[] = {
    {0x08, 1, u8, decode<std::uint8_t, std::uint8_t>},
    {0x09, 1, i32, decode<std::int8_t, std::int32_t>},
    {0x0B, 2, i32, decode<std::int16_t, std::int32_t>},
    {0x0C, 4, i32, decode<std::int32_t, std::int32_t>},
    {0x0D, 4, f32, decode<float, float>},
    {0x0E, 8, f64, decode<double, double>},
};

// zlib reads a file that is not compressed as it is.
class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path) {
    std::error_code ignored;
    check(!std::filesystem::is_directory(path, ignored), "read_idx: '{}' is a folder; expected an IDX file", path);
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    check(file_ != nullptr, "read_idx: cannot open '{}' ({}); expected an IDX file, plain or .gz", path,
          std::strerror(errno));
  }

  // Appends up to n bytes, fewer only at the end of the file. Since n may be a lie, memory is taken in steps.
  void read(Bytes& out, std::uint64_t n) {
    constexpr std::uint64_t step = std::uint64_t{1} << 20;
    for (std::uint64_t left = n; left > 0;) {
      const std::uint64_t ask = std::min(left, step);
      const std::size_t before = out.size();
      out.resize(before + ask);
      const int got = gzread(file_.get(), out.data() + before, static_cast<unsigned>(ask));
      out.resize(before + static_cast<std::size_t>(std::max(got, 0)));
      if (got == static_cast<int>(ask)) {
        left -= ask;
        continue;
      }
      int code = Z_OK;
      const std::string problem = gzerror(file_.get(), &code);
      check(code == Z_OK || code == Z_STREAM_END,
            "read_idx: '{}' is damaged: unpacking it fails after {} bytes ({}); get the file again", path_, out.size(),
            code == Z_ERRNO ? std::strerror(errno) : problem.substr(problem.starts_with(path_) ? path_.size() + 2 : 0));
      return;
    }
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

Tensor read_idx(const std::string& path) {
  GzipFile file(path);

  Bytes header;
  file.read(header, 4);
  check(!header.empty(), "read_idx: '{}' is empty; expected an IDX file, which begins with two zero bytes", path);
  check(header.size() == 4, "read_idx: '{}' ends after {} bytes; expected the 4 bytes that an IDX file begins with",
        path, header.size());
  check(header[0] == 0 && header[1] == 0,
        "read_idx: '{}' begins with the bytes {:02x} {:02x}; expected 00 00, as in every IDX file", path, header[0],
        header[1]);
  const auto* type = std::find_if(std::begin(element_types), std::end(element_types),
                                  [&](const ElementType& t) { return t.code == header[2]; });
  check(type != std::end(element_types),
        "read_idx: '{}' has the element type {:02x}; expected 08 (unsigned byte), 09 (signed byte), "
        "0b (short), 0c (int), 0d (float) or 0e (double)",
        path, header[2]);
  const std::size_t rank = header[3];
  check(rank > 0, "read_idx: '{}' has rank 0; expected at least one dimension", path);

  header.clear();
  file.read(header, 4 * rank);
  check(header.size() == 4 * rank, "read_idx: '{}' ends within its header: {} bytes of sizes, expected {} for rank {}",
        path, header.size(), 4 * rank, rank);
  Shape shape;
  std::int64_t bytes = type->bytes;
  std::int64_t extent = type->bytes;  // the same with 1 for sizes of 0, as in the computation of strides
  for (std::size_t d = 0; d < rank; ++d) {
    std::uint32_t size = 0;
    decode<std::uint32_t, std::uint32_t>(&header[4 * d], 1, &size);
    shape.push_back(size);
    check(!__builtin_mul_overflow(extent, std::max<std::int64_t>(size, 1), &extent),
          "read_idx: '{}' announces sizes whose product does not fit in 64 bits (dimension {} is {}); "
          "expected the sizes of an array that fits in memory",
          path, d, size);
    bytes *= size;
  }

  Bytes body;
  file.read(body, static_cast<std::uint64_t>(bytes));
  check(std::ssize(body) == bytes,
        "read_idx: '{}' is cut off: its shape {} of {} takes {} bytes, found {}; get the file again", path, shape,
        name_of(type->dtype), bytes, body.size());
  Bytes rest;
  file.read(rest, 1);  // also checks the checksum behind the last byte
  check(rest.empty(), "read_idx: '{}' goes on after its last element: its shape {} takes {} bytes of data, found more",
        path, shape, bytes);

  Tensor x = empty(shape, type->dtype);
  if (bytes > 0) type->decode(body.data(), x.numel(), x.raw_data());
  return x;
}

}  // namespace halfgrad::data
