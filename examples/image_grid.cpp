#include "examples/image_grid.h"

#include "engine/io/atomic_file.h"
#include "engine/ops/elementwise.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb_image_write.h>

namespace examples {

using namespace halfgrad;

void save_image_grid(const std::string& path, const Tensor& images, std::int64_t columns) {
  check(images.rank() == 4 && images.size(1) == 1 && images.size(0) > 0 && images.size(0) % columns == 0,
        "save_image_grid: the images are {}; expected [N, 1, H, W] with N a multiple of {}", images.shape().str(),
        columns);
  const std::int64_t rows = images.size(0) / columns, height = images.size(2), width = images.size(3);
  const Tensor grid = images.reshape({rows, columns, height, width}).permute({0, 2, 1, 3});
  const Tensor bytes = cast(round(clamp((grid + 1) * 127.5, 0, 255)), u8).contiguous().to(Device::cpu());

  std::string png;
  const auto append = [](void* out, void* data, int size) {
    static_cast<std::string*>(out)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  };
  const auto row_bytes = static_cast<int>(columns * width);
  check(stbi_write_png_to_func(append, &png, row_bytes, static_cast<int>(rows * height), 1, bytes.raw_data(),
                               row_bytes) != 0,
        "save_image_grid: out of memory for '{}'", path);
  write_file_atomically(path, png);
}

}  // namespace examples
