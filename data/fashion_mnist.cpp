#include "data/fashion_mnist.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "data/idx.h"
#include "engine/error.h"
#include "engine/ops/elementwise.h"

namespace halfgrad::data {

namespace {

constexpr const char* package_dir = "/usr/share/datasets/fashion-mnist";  // of Debian's dataset-fashion-mnist

std::string find_file(const std::string& dir, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(dir.empty() ? package_dir : dir) / name;
  for (const std::string& path : {plain.string(), plain.string() + ".gz"}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  fail(
      "fashion_mnist: found neither '{}' nor '{}.gz'; install Debian's package with `apt install "
      "dataset-fashion-mnist`, or give the folder that has the four files as .dir",
      plain.string(), plain.string());
}

}  // namespace

TensorDataset fashion_mnist_dataset(bool train, const std::string& dir, std::int64_t limit) {
  check(limit >= 0, "fashion_mnist: a limit of {} images was asked for; expected 0, which means all, or more", limit);
  const std::string prefix = train ? "train" : "t10k";
  const std::string images_path = find_file(dir, prefix + "-images-idx3-ubyte");
  const std::string labels_path = find_file(dir, prefix + "-labels-idx1-ubyte");

  Tensor images = read_idx(images_path);
  check(images.dtype() == u8 && images.rank() == 3 && images.size(1) == 28 && images.size(2) == 28,
        "fashion_mnist: '{}' holds {} {}; expected images, u8 [N, 28, 28]", images_path, name_of(images.dtype()),
        images.shape());
  Tensor labels = read_idx(labels_path);
  check(labels.dtype() == u8 && labels.rank() == 1 && labels.size(0) == images.size(0),
        "fashion_mnist: '{}' holds {} {}; expected a label for each of the {} images, u8", labels_path,
        name_of(labels.dtype()), labels.shape(), images.size(0));
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    const int label = labels.data<std::uint8_t>()[i];
    check(label < 10, "fashion_mnist: '{}' has the label {} for image {}; expected 0 to 9", labels_path, label, i);
  }

  if (limit > 0) {
    images = images.slice(0, 0, limit);
    labels = labels.slice(0, 0, limit);
  }
  return TensorDataset(images.unsqueeze(1), cast(labels, i64));
}

Data fashion_mnist(const FashionMnistOptions& options) {
  const Normalize normalize{.mean = {fashion_mnist_mean}, .std = {fashion_mnist_std}};
  LoaderOptions loader{
      .batch_size = options.batch_size, .seed = options.seed, .prefetch = options.prefetch, .transforms = {normalize}};
  DataLoader valid(fashion_mnist_dataset(false, options.dir, options.valid_limit), loader);

  loader.shuffle = true;
  if (options.augment) loader.transforms = {RandomShift{.pixels = 2}, RandomFlip{}, normalize};
  DataLoader train(fashion_mnist_dataset(true, options.dir, options.train_limit), loader);
  return {.train = std::move(train), .valid = std::move(valid)};
}

}  // namespace halfgrad::data
