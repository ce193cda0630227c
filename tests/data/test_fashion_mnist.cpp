#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/fashion_mnist.h"
#include "engine/error.h"

using namespace halfgrad;
using namespace halfgrad::data;

namespace {

bool installed() {
  if (std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")) return true;
  MESSAGE("skipped: Debian's package dataset-fashion-mnist is not installed");
  return false;
}

// A folder with a tiny data set of the same form, plain files, gone with its test.
class TinyFolder {
 public:
  explicit TinyFolder(int labels = 3, int last_label = 9)
      : dir_(std::filesystem::temp_directory_path() / ("halfgrad_fashion_" + std::to_string(getpid()))) {
    std::filesystem::create_directory(dir_);
    for (const std::string prefix : {"train", "t10k"}) {
      std::string images{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28};
      images += std::string(784, '\0') + std::string(784, '\x33') + std::string(784, '\xff');
      std::ofstream(dir_ / (prefix + "-images-idx3-ubyte"), std::ios::binary) << images;
      std::string targets{0, 0, 8, 1, 0, 0, 0, static_cast<char>(labels)};
      for (int i = 0; i < labels; ++i) targets += static_cast<char>(i + 1 < labels ? i : last_label);
      std::ofstream(dir_ / (prefix + "-labels-idx1-ubyte"), std::ios::binary) << targets;
    }
  }
  ~TinyFolder() { std::filesystem::remove_all(dir_); }
  TinyFolder(const TinyFolder&) = delete;
  TinyFolder& operator=(const TinyFolder&) = delete;
  std::string path() const { return dir_.string(); }

 private:
  std::filesystem::path dir_;
};

}  // namespace

TEST_CASE("Fashion-MNIST is read from a folder of plain files and normalised") {
  const TinyFolder folder;
  Data data = fashion_mnist({.batch_size = 2, .dir = folder.path()});
  CHECK(data.train.size() == 2);
  std::vector<float> pixels;
  std::vector<int> labels;
  for (const Batch& batch : data.valid) {
    const Tensor& x = batch.inputs[0];
    CHECK(x.dtype() == f32);
    CHECK(x.shape() == Shape{x.size(0), 1, 28, 28});
    CHECK(batch.targets[0].dtype() == i64);
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      pixels.push_back(x[i].flatten()[783].item<float>());
      labels.push_back(batch.targets[0][i].item<int>());
    }
  }
  CHECK(labels == std::vector<int>{0, 1, 9});
  CHECK(pixels == std::vector<float>{-0.2860f / 0.3530f, (0.2f - 0.2860f) / 0.3530f, (1 - 0.2860f) / 0.3530f});
}

TEST_CASE("Fashion-MNIST that is missing, or not what it should be, is a clear error") {
  CHECK_THROWS_WITH_AS(fashion_mnist({.dir = "/nowhere"}), doctest::Contains("apt install dataset-fashion-mnist"),
                       Error);
  CHECK_THROWS_WITH_AS(fashion_mnist({.dir = "/nowhere"}), doctest::Contains("/nowhere/t10k-images-idx3-ubyte"), Error);
  {
    const TinyFolder folder(2);
    CHECK_THROWS_WITH_AS(fashion_mnist({.dir = folder.path()}), doctest::Contains("a label for each of the 3 images"),
                         Error);
  }
  const TinyFolder folder(3, 10);
  CHECK_THROWS_WITH_AS(fashion_mnist({.dir = folder.path()}), doctest::Contains("the label 10 for image 2"), Error);
  CHECK_THROWS_WITH_AS(fashion_mnist({.dir = folder.path(), .valid_limit = -1}), doctest::Contains("limit"), Error);
  std::filesystem::copy_file(folder.path() + "/t10k-labels-idx1-ubyte", folder.path() + "/t10k-images-idx3-ubyte",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THROWS_WITH_AS(fashion_mnist({.dir = folder.path()}), doctest::Contains("holds u8 [3]; expected images"),
                       Error);
}

TEST_CASE("Fashion-MNIST of Debian's package has the published sizes, classes and statistics") {
  if (!installed()) return;
  Data data = fashion_mnist({.batch_size = 128});
  CHECK(data.train.size() == 469);
  CHECK(data.valid.size() == 79);
  std::vector<int> per_class(10, 0);
  double sum = 0, squares = 0;
  std::int64_t items = 0;
  for (const auto& [inputs, targets] : data.train) {
    items += inputs[0].size(0);
    for (std::int64_t i = 0; i < targets[0].numel(); ++i) ++per_class[targets[0].data<std::int64_t>()[i]];
    for (std::int64_t i = 0; i < inputs[0].numel(); ++i) {
      const double x = inputs[0].data<float>()[i];
      sum += x;
      squares += x * x;
    }
  }
  CHECK(items == 60000);
  CHECK(per_class == std::vector<int>(10, 6000));
  CHECK(std::abs(sum / (60000 * 784)) < 1e-3);  // the mean and std are given to 4 digits
  CHECK(std::abs(squares / (60000 * 784) - 1) < 1e-3);
  CHECK(std::string(fashion_mnist_classes[9]) == "Ankle boot");
}

TEST_CASE("Fashion-MNIST can be limited and augmented, and training is shuffled") {
  if (!installed()) return;
  const auto first_batch = [](DataLoader& loader) { return loader.begin()->inputs[0].to_vector<float>(); };
  FashionMnistOptions options{.batch_size = 50, .train_limit = 100, .valid_limit = 60};
  Data data = fashion_mnist(options);
  CHECK(data.train.size() == 2);
  CHECK(data.valid.size() == 2);
  CHECK(first_batch(data.train) != first_batch(data.train));  // two epochs
  CHECK(first_batch(data.valid) == first_batch(data.valid));

  options.augment = true;
  Data augmented = fashion_mnist(options);
  options.prefetch = 0;
  Data not_ahead = fashion_mnist(options);
  data.train.set_epoch(0);
  const std::vector<float> changed = first_batch(augmented.train);
  CHECK(changed != first_batch(data.train));
  CHECK(changed == first_batch(not_ahead.train));
  CHECK(first_batch(augmented.valid) == first_batch(data.valid));
}
